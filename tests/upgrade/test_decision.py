"""The rule of the gate on simulated rounds.

What it lets pass, what it finds, and what it leaves open.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.upgrade.decision import (
    Figure,
    Round,
    Side,
    available_clocks,
    call_waits,
    compare_accuracy,
    compare_rounds,
    figures_of,
    is_decided,
    verdict_of,
)


def latency(*values: float, error: float = 0.002) -> list[dict[str, Figure]]:
    """Rounds in which B takes exp(value) times what A takes."""
    return [
        {"latency": Figure(0.001, 0.001 * math.exp(value), value, error, 400)} for value in values
    ]


def verdict(rounds: list[dict[str, Figure]], **tolerances: float) -> Verdict:
    return verdict_of(compare_rounds(rounds, tolerances))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.0, 0.001), Verdict.PASSED),
        ((0.10, 0.098), Verdict.REGRESSED),
        ((0.05, 0.051), Verdict.REGRESSED),
        ((0.03, 0.031), Verdict.INCONCLUSIVE),
        ((-0.10, -0.11), Verdict.IMPROVED),
        ((-0.03, -0.029), Verdict.PASSED),
    ],
)
def test_the_interval_decides(values: tuple[float, ...], expected: Verdict) -> None:
    assert verdict(latency(*values)) is expected


def test_the_rule_by_hand() -> None:
    # two rounds at 0 and 0.004 with errors of 0.003: weights 1 / (0.003^2 + 0.004^2) = 40,000, mean
    # 0.002; Q = 2 * 40,000 * 0.002^2 = 0.32 < 1, so s = 1 / sqrt(80,000) = 0.0035355 with 8 + 1
    # degrees of freedom; t(9, 1 - 0.01 / 5) = 3.8315..., t(9, 1 - 0.05 / 5) = 2.8214
    (found,) = compare_rounds(latency(0.0, 0.004, error=0.003), {})
    assert math.log(found.ratio) == pytest.approx(0.002)
    assert math.log(found.high) == pytest.approx(0.002 + 2.8214 * 0.0035355, abs=1e-6)
    assert math.log(found.low) == pytest.approx(0.002 - 3.8315 * 0.0035355, abs=5e-5)
    assert found.floor == pytest.approx(math.expm1(3.8315 * 0.0035355), abs=5e-5)


def test_one_round_decides_nothing_however_clear_it_looks() -> None:
    assert verdict(latency(0.5)) is Verdict.INCONCLUSIVE
    (found,) = compare_rounds(latency(0.0), {})
    assert found.lacking == "needs 2 rounds, had 1"


def test_a_round_that_says_nothing_does_not_count_as_one() -> None:
    nothing = {"latency": Figure(0.001, 0.001, 0.0, math.inf, 400)}
    (found,) = compare_rounds([*latency(0.5), nothing], {})
    assert (found.verdict, found.lacking) == (Verdict.INCONCLUSIVE, "needs 2 rounds, had 1")
    assert verdict([*latency(0.5, 0.5), nothing]) is Verdict.REGRESSED


def test_rounds_that_contradict_each_other_decide_nothing() -> None:
    assert verdict(latency(0.0, 0.25, error=0.001)) is Verdict.INCONCLUSIVE
    assert verdict(latency(0.01, -0.007, -0.24, error=0.02)) is Verdict.INCONCLUSIVE


@given(
    st.lists(st.floats(-0.3, 0.3), min_size=2, max_size=6),
    st.floats(0.001, 0.2),
    st.floats(0.001, 0.2),
)
def test_what_a_tolerance_passes_a_wider_one_passes_too(
    values: list[float], one: float, other: float
) -> None:
    narrow, wide = sorted((one, other))
    order = [Verdict.IMPROVED, Verdict.PASSED, Verdict.INCONCLUSIVE, Verdict.REGRESSED]
    (strict,), (loose,) = (
        compare_rounds(latency(*values), {"latency": share}) for share in (narrow, wide)
    )
    if (
        strict.verdict in (Verdict.PASSED, Verdict.REGRESSED)
        and strict.verdict is not loose.verdict
    ):
        assert order.index(loose.verdict) <= order.index(strict.verdict)
    assert (strict.low, strict.ratio, strict.high) == (loose.low, loose.ratio, loose.high)


def sequential(
    rng: np.random.Generator, effect: float, spread: float = 0.004, error: float = 0.002
) -> Verdict:
    """Run the rule as the item does, on made-up rounds."""
    values = effect + rng.normal(0, math.hypot(spread, error), 6)
    found = Verdict.INCONCLUSIVE
    for count in range(2, 7):
        found = verdict(latency(*values[:count], error=error))
        if found is not Verdict.INCONCLUSIVE:
            break
    return found


def test_identical_stacks_are_hardly_ever_flagged_and_real_slowdowns_are_found() -> None:
    rng = np.random.default_rng(1)
    same = [sequential(rng, 0.0) for _ in range(1000)]
    assert Verdict.REGRESSED not in same
    assert same.count(Verdict.PASSED) > 980
    worse = [sequential(rng, math.log(1.06)) for _ in range(500)]
    assert worse.count(Verdict.REGRESSED) > 450
    assert worse.count(Verdict.PASSED) == 0


def test_at_the_edge_of_the_tolerance_the_risks_are_those_that_it_says() -> None:
    rng = np.random.default_rng(2)
    edge = [sequential(rng, math.log(1.03)) for _ in range(2000)]
    assert edge.count(Verdict.REGRESSED) <= 2000 * 0.01 + 15
    assert edge.count(Verdict.PASSED) <= 2000 * 0.05 + 30


def side(
    rng: np.random.Generator, factor: float = 1.0, pairs: int = 60, calls: int = 3, **facts: Any
) -> Side:
    wall = 0.001 * factor * np.exp(rng.normal(0, 0.01, (pairs, calls)))
    fields: dict[str, Any] = {
        "wait": np.zeros((pairs, calls)),
        "cpu": wall.mean(axis=1),
        "device": None,
    }
    fields.update(load_seconds=2 * factor, first_seconds=0.01, peak_bytes=1 << 27)
    return Side(**{"wall": wall, **fields, **facts})


def both(a: Side, b: Side, clock: Any = "adj") -> list[Comparison]:
    return compare_rounds([figures_of(Round(a, b), clock, 8)] * 2, {})


def of(found: list[Comparison], quantity: str) -> Comparison:
    return next(one for one in found if one.quantity == quantity)


def test_every_quantity_is_compared() -> None:
    rng = np.random.default_rng(3)
    found = both(side(rng), side(rng, 2.0))
    verdicts = {one.quantity: one.verdict for one in found}
    assert verdicts.pop("peak_memory") is Verdict.PASSED
    assert verdicts.pop("first_inference") is Verdict.PASSED
    assert set(verdicts) == {
        *(
            "latency",
            "cpu_time",
            "wall_time",
            "latency_p90",
            "latency_p95",
            "throughput",
            "load_time",
        ),
    }
    assert set(verdicts.values()) == {Verdict.REGRESSED}
    assert of(found, "throughput").ratio == pytest.approx(0.5, rel=0.02)
    assert of(found, "throughput").a == pytest.approx(8000, rel=0.02)
    assert of(found, "throughput").low < 0.5 < of(found, "throughput").high


def test_a_wait_for_a_core_is_no_slowdown_by_the_adjusted_clock_and_one_by_the_wall() -> None:
    rng = np.random.default_rng(4)
    a, b = side(rng), side(rng)
    delayed = side(rng, wall=b.wall + 0.001, wait=np.full(b.wall.shape, 0.001))
    found = both(a, delayed)
    assert of(found, "latency").verdict is Verdict.PASSED
    assert of(found, "wall_time").verdict is Verdict.REGRESSED
    assert verdict_of(found) is Verdict.REGRESSED


def test_a_candidate_that_burns_more_cores_for_the_same_latency_is_found_by_its_cpu_time() -> None:
    rng = np.random.default_rng(5)
    a, b = side(rng), side(rng)
    found = both(a, side(rng, wall=b.wall, cpu=2 * b.cpu))
    assert of(found, "latency").verdict is Verdict.PASSED
    assert verdict_of(found) is Verdict.REGRESSED


def test_a_tail_with_too_few_calls_is_open_and_says_so() -> None:
    rng = np.random.default_rng(6)
    found = both(side(rng, pairs=20, calls=2), side(rng, pairs=20, calls=2))
    assert of(found, "latency_p95").verdict is Verdict.INCONCLUSIVE
    assert of(found, "latency_p95").lacking == "needs 59 calls a round, had 40"
    assert of(found, "latency_p90").verdict is Verdict.PASSED


def test_a_guard_that_is_worse_waits_for_the_gates_to_be_decided() -> None:
    worse = {"load_time": Figure(0.1, 0.9, math.log(9), 0.0)}
    opened = compare_rounds([{**one, **worse} for one in latency(0.03, 0.031)], {})
    assert [one.verdict for one in opened] == [Verdict.INCONCLUSIVE, Verdict.REGRESSED]
    assert not is_decided(opened, 2)
    assert verdict_of(opened) is Verdict.REGRESSED
    assert is_decided(compare_rounds([{**one, **worse} for one in latency(0.0, 0.001)], {}), 2)
    assert not is_decided(compare_rounds(latency(0.0), {}), 1)
    wrong = compare_accuracy(np.ones(600, bool), np.zeros(600, bool), 1, 0.01, True)
    assert is_decided([wrong], 1)


def test_a_guard_that_is_open_leaves_the_item_alone_and_a_gate_does_not() -> None:
    rounds = [
        {**latency(0.0)[0], "load_time": Figure(0.1, 0.1 * math.exp(x), x, 0.0)}
        for x in (0.35, 0.35)
    ]
    found = compare_rounds(rounds, {})
    assert [one.verdict for one in found] == [Verdict.PASSED, Verdict.INCONCLUSIVE]
    assert verdict_of(found) is Verdict.PASSED
    assert verdict_of(compare_rounds(rounds, {}, ("latency", "load_time"))) is Verdict.INCONCLUSIVE


def test_a_clock_that_stands_still_decides_nothing() -> None:
    rng = np.random.default_rng(7)
    found = both(side(rng, cpu=np.zeros(60)), side(rng, cpu=np.zeros(60)))
    assert (
        of(found, "cpu_time").lacking
        == "too few pairs, or a clock that stands still between two readings"
    )
    assert of(found, "cpu_time").verdict is Verdict.INCONCLUSIVE


def test_the_clocks_are_those_that_both_sides_have() -> None:
    rng = np.random.default_rng(8)
    events = side(rng, device=np.full((60, 3), 1e-4))
    assert available_clocks(Round(events, events))[0] == "device"
    assert available_clocks(Round(events, side(rng)))[0] == "adj"
    assert available_clocks(Round(side(rng), side(rng, wait=None))) == ["cpu", "wall"]


def test_device_time_is_what_is_compared_where_it_is_asked_for() -> None:
    rng = np.random.default_rng(9)
    a, b = (side(rng, device=np.full((60, 3), seconds)) for seconds in (1e-4, 1.5e-4))
    assert of(both(a, b, "device"), "latency").ratio == pytest.approx(1.5)
    assert of(both(a, b, "adj"), "latency").verdict is Verdict.PASSED


def test_a_wait_belongs_to_the_longest_call_between_two_readings() -> None:
    start = np.array([0.0, 1.0, 2.0, 3.0])
    end = np.array([0.1, 1.5, 2.1, 3.1])
    waits = call_waits(start, end, np.array([5.0, 5.4, 5.4]), np.array([0.0, 3.0, 4.0]))
    assert waits == pytest.approx([0, 0.4, 0, 0])
    waits = call_waits(start, end, np.array([5.0, 5.4, 5.9]), np.array([0.0, 3.0, 4.0]))
    assert waits == pytest.approx(
        [0, 0.4, 0, 0]
    )  # half a second of wait can't be in a call of a tenth


def test_a_device_clock_of_zero_decides_nothing_and_breaks_nothing() -> None:
    rng = np.random.default_rng(11)
    a, b = (side(rng, device=np.zeros((60, 3))) for _ in range(2))
    found = both(a, b, "device")
    assert of(found, "latency").verdict is Verdict.INCONCLUSIVE
    assert "latency_p90" not in {one.quantity for one in found}


@settings(max_examples=50)
@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 200))
def test_accuracy_regresses_only_where_losses_outweigh_chance_and_tolerance(
    lost: int, won: int, both_: int
) -> None:
    count = lost + won + both_ + 1
    a = np.array([True] * lost + [False] * won + [True] * both_ + [False])
    b = np.array([False] * lost + [True] * won + [True] * both_ + [False])
    found = compare_accuracy(a, b, 1, 0.01, gate=True)
    if found.verdict is Verdict.REGRESSED:
        assert lost - won > 0.01 * count
    if lost <= won and lost == 0:
        assert found.verdict is Verdict.PASSED
    assert found.ratio == pytest.approx((won - lost) / count)


def test_seven_of_six_hundred_lost_is_a_loss_and_two_may_be_chance() -> None:
    a = np.ones(600, bool)
    assert compare_accuracy(a, np.arange(600) >= 7, 1, 0.01, True).verdict is Verdict.REGRESSED
    assert compare_accuracy(a, np.arange(600) >= 5, 1, 0.01, True).verdict is Verdict.INCONCLUSIVE
    assert compare_accuracy(a, np.arange(600) >= 1, 1, 0.01, True).verdict is Verdict.PASSED


def test_without_a_gate_that_was_measured_there_is_no_pass() -> None:
    assert verdict_of([]) is Verdict.INCONCLUSIVE


def test_start_up_that_is_short_on_both_sides_is_no_matter() -> None:
    rng = np.random.default_rng(10)
    found = both(
        side(rng, load_seconds=0.001, first_seconds=0.0005),
        side(rng, load_seconds=0.004, first_seconds=0.002),
    )
    assert of(found, "load_time").verdict is Verdict.PASSED
    assert of(found, "first_inference").verdict is Verdict.PASSED
    found = both(
        side(rng, load_seconds=0.1, first_seconds=0.05),
        side(rng, load_seconds=0.4, first_seconds=0.2),
    )
    assert of(found, "load_time").verdict is Verdict.REGRESSED
    assert of(found, "first_inference").verdict is Verdict.REGRESSED
