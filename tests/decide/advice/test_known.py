"""What earlier runs set aside, and what they don't."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.core.records import Limit, Place
from pytest_mlms.decide.advice.known import Known, hopeless

LIMIT = Limit("latency_p99", 0.010, Place(Path("--subject-to"), 1))


def runs(low: float, high: float) -> Known:
    return Known((low + high) / 2, low, high, 5, "2026-11-29T10:00:00")


def known(rate: float, latency: float) -> dict[str, Known]:
    ends = {"throughput": rate, "latency_p99": latency}
    return {name: runs(0.9 * value, 1.1 * value) for name, value in ends.items()}


def test_what_is_far_worse_than_what_fits_is_set_aside() -> None:
    candidates = [known(100, 0.001), known(30, 0.001), known(60, 0.001)]
    found = hopeless(candidates, "throughput", [[LIMIT]] * 3, [None] * 3)
    assert found == {1: "far worse than another in the last 5 runs until 2026-11-29"}


def test_what_is_far_over_its_limit_is_set_aside_and_sets_nothing_aside() -> None:
    candidates = [known(900, 0.100), known(10, 0.001)]
    assert [*hopeless(candidates, "throughput", [[LIMIT]] * 2, [None] * 2)] == [0]


def test_what_may_break_a_limit_sets_nothing_aside() -> None:
    candidates = [known(900, 0.0095), known(10, 0.001)]
    assert not hopeless(candidates, "throughput", [[LIMIT]] * 2, [None] * 2)


def test_what_the_history_does_not_know_is_measured() -> None:
    candidates = [known(900, 0.001), {}, {"throughput": runs(500, 1000)}]
    assert not hopeless(candidates, "throughput", [[LIMIT]] * 3, [None] * 3)


def test_one_good_run_among_the_last_keeps_a_candidate() -> None:
    candidates = [known(100, 0.001), {"throughput": runs(10, 60)}]
    assert not hopeless(candidates, "throughput", [[LIMIT]] * 2, [None] * 2)


@pytest.mark.parametrize("least", [-10.0, 0.0])
def test_what_is_not_above_0_has_no_factor(least: float) -> None:
    shrinking = Known(least, least - 2, least, 5, "2026-11-29T10:00:00")
    grown = {"memory_growth": runs(1, 2)}
    assert not hopeless(
        [{"memory_growth": shrinking}, grown], "memory_growth", [[], []], [None] * 2
    )


def test_what_may_answer_wrongly_sets_only_what_answers_alike_aside() -> None:
    candidates = [known(900, 0.001), known(10, 0.001), known(10, 0.001)]
    answering = ["int8", "fp32", "int8"]
    assert [*hopeless(candidates, "throughput", [[LIMIT]] * 3, answering)] == [2]
