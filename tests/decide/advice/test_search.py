"""The search of advice on candidates of known truth, and what ends it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Limit, Place
from pytest_mlms.core.statistics import Interval
from pytest_mlms.decide.advice.search import Goal, Process, search

LIMIT = Limit("latency_p99", 0.015, Place(Path("--subject-to"), 1))
WITHIN = Goal("throughput", -1, [LIMIT])


def steady(rates: list[float], latencies: list[float]) -> list[Process]:
    return [
        Process({"throughput": rate, "latency_p99": latency}, 1.0)
        for rate, latency in zip(rates, latencies, strict=True)
    ]


def test_candidates_that_do_not_differ_have_no_winner_by_chance() -> None:
    processes = steady([100.0, 100.0, 50.0], [0.001] * 3)
    found = search(3, WITHIN, processes.__getitem__)
    assert found.is_sure
    assert [each.standing for each in found.findings] == ["best", "alike", "worse"]


def test_what_surely_breaks_a_limit_is_no_answer_however_fast() -> None:
    processes = steady([900.0, 100.0], [0.030, 0.001])
    found = search(2, WITHIN, processes.__getitem__)
    assert found.best == 1
    assert found.findings[0].standing == "breaks"


def test_what_is_at_a_limit_is_set_aside_instead_of_measured_for_ever() -> None:
    found = search(1, WITHIN, lambda number: steady([100.0], [0.015])[0])
    assert (found.best, found.ended, found.rounds) == (None, "decided", 6)
    assert found.findings[0].standing == "near"


def test_where_nothing_fits_there_is_no_answer() -> None:
    found = search(2, WITHIN, steady([1.0, 2.0], [0.1, 0.1]).__getitem__)
    assert found.best is None
    assert {each.standing for each in found.findings} == {"breaks"}


def test_candidates_that_fail_are_out_with_their_reason() -> None:
    def measure(number: int) -> Process:
        raise MlmsError(f"agent {number} died")

    found = search(2, WITHIN, measure)
    assert (found.best, found.rounds) == (None, 1)
    assert [each.reason for each in found.findings] == ["agent 0 died", "agent 1 died"]


def test_a_budget_for_less_than_two_processes_decides_nothing() -> None:
    goal = Goal("throughput", -1, [LIMIT], budget=2.0)
    found = search(2, goal, steady([1.0, 2.0], [0.001] * 2).__getitem__)
    assert (found.best, found.ended, found.is_sure) == (None, "budget", False)
    assert {each.standing for each in found.findings} <= {"open", "unmeasured"}


def test_a_budget_that_is_short_is_spent_on_the_better_half() -> None:
    goal = Goal("throughput", -1, [LIMIT], budget=8.0)
    processes = steady([1.00, 1.01, 1.02, 1.03, 1.04, 1.05], [0.001] * 6)
    found = search(6, goal, processes.__getitem__)
    assert not found.is_sure
    assert [each.processes for each in found.findings] == [1, 1, 1, 1, 1, 2]
    assert found.findings[0].standing == "open"


def test_what_was_measured_before_an_interruption_is_judged() -> None:
    calls = 0

    def measure(number: int) -> Process:
        nonlocal calls
        calls += 1
        if calls > 13:
            raise KeyboardInterrupt
        return steady([100.0, 99.99, 99.98], [0.001] * 3)[number]

    found = search(3, Goal("throughput", -1, [LIMIT], tolerance=1e-5), measure)
    assert (found.best, found.ended, found.is_sure) == (0, "interrupted", False)
    assert sum(each.processes for each in found.findings) == 13


def test_an_interval_is_no_narrower_than_the_calls_allow() -> None:
    def reach(number: int, quantity: str, confidence: float) -> Interval:
        return Interval(0.001, math.inf)

    found = search(1, WITHIN, lambda number: steady([1.0], [0.001])[0], reach)
    assert (found.best, found.ended) == (None, "last look")
    assert found.findings[0].standing == "open"


@pytest.mark.parametrize("value", [0.0, -5.0])
def test_a_value_of_nothing_is_within_a_limit(value: float) -> None:
    limit = Limit("memory_growth", 100.0, Place(Path("--subject-to"), 1))
    process = Process({"throughput": 1.0, "memory_growth": value}, 1.0)
    assert search(1, Goal("throughput", -1, [limit]), lambda number: process).best == 0


def test_calls_that_still_change_decide_nothing_that_they_may_cross() -> None:
    values = {"throughput": 100.0, "latency_p99": 0.012}
    slack = {"latency_p99": math.log(1.3)}
    found = search(1, WITHIN, lambda number: Process(values, 1.0, slack))
    assert (found.best, found.findings[0].standing) == (None, "open")


def test_a_faster_candidate_that_has_not_settled_is_no_winner() -> None:
    processes = steady([100.0, 120.0], [0.001] * 2)
    processes[1] = processes[1]._replace(slack={"throughput": math.log(1.5)})
    found = search(2, Goal("throughput", -1), processes.__getitem__)
    assert not found.is_sure


def test_the_mean_decides_on_a_limit_also_where_most_processes_are_far_below_it() -> None:
    turns = iter(range(100))
    values = (0.0, 0.0, 0.0, 0.0, 0.0, 1e6)

    def measure(number: int) -> Process:
        grown = values[next(turns) % len(values)]
        return Process({"throughput": 1.0, "memory_growth": grown}, 1.0)

    limit = Limit("memory_growth", 100.0, Place(Path("--subject-to"), 1))
    found = search(1, Goal("throughput", -1, [limit]), measure)
    assert found.best is None


def test_a_limit_of_another_manifest_does_not_judge() -> None:
    other = Limit("latency_p99", 0.0001, Place(Path("other.yaml"), 1))
    goal = Goal("throughput", -1, [LIMIT, other], lambda limit, n: limit is LIMIT or n == 1)
    found = search(2, goal, steady([100.0, 900.0], [0.001] * 2).__getitem__)
    assert [each.standing for each in found.findings] == ["best", "breaks"]


def test_without_candidates_there_is_no_answer() -> None:
    found = search(0, WITHIN, lambda number: steady([1.0], [1.0])[0])
    assert (found.best, found.ended) == (None, "decided")


def test_each_round_has_one_turn_of_the_device_and_what_it_raises_ends_the_search() -> None:
    turns = []

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        turns.append(1)
        yield

    found = search(2, WITHIN, steady([1.0, 2.0], [0.001] * 2).__getitem__, turn=turn)
    assert len(turns) == found.rounds

    @contextlib.contextmanager
    def disturbed() -> Iterator[None]:
        yield
        raise MlmsError("another program used the device")

    with pytest.raises(MlmsError, match="another program"):
        search(2, WITHIN, steady([1.0, 2.0], [0.001] * 2).__getitem__, turn=disturbed)


def test_what_lost_to_one_that_is_not_shown_to_fit_after_all_is_in_the_search_again() -> None:
    turns = [0, 0, 0]

    def measure(number: int) -> Process:
        turns[number] += 1
        if number == 0:
            slack = {"latency_p99": math.log(9)} if turns[0] > 2 else {}
            return steady([200.0], [0.009])[0]._replace(slack=slack)
        if number == 1:
            return steady([100.0], [0.001])[0]
        return steady([400.0], [0.0149 if turns[2] < 4 else 0.06])[0]

    found = search(3, WITHIN, measure)
    assert found.best == 1
    assert [each.standing for each in found.findings] == ["open", "best", "breaks"]


def test_a_single_candidate_whose_values_are_all_1_is_decided() -> None:
    limit = Limit("first_inference", 9.0, Place(Path("--subject-to"), 1))
    process = Process({"throughput": 1.0, "first_inference": 1.0}, 1.0)
    assert search(1, Goal("throughput", -1, [limit]), lambda number: process).best == 0
