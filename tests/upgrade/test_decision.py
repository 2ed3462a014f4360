"""The decision rule of an upgrade, on made-up and on simulated rounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.upgrade.decision import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    compare_accuracy,
    compare_rounds,
    is_decided,
    verdict_of,
)
from pytest_mlms.upgrade.figures import Figure, figures_of
from pytest_mlms.upgrade.rounds import Clock, Round, Side
from tests.support.upgrades import CALLS, PAIRS, changed, find, latencies, random_side


def verdict(rounds: list[dict[str, Figure]]) -> Verdict:
    return verdict_of(compare_rounds(rounds, {}))


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
    assert verdict(latencies(*values)) is expected


def test_the_rule_agrees_with_a_calculation_by_hand() -> None:
    # Two rounds at 0 and 0.004 with errors of 0.003: weights 1 / (0.003^2 + 0.004^2) = 40,000,
    # mean 0.002. Q = 2 * 40,000 * 0.002^2 = 0.32 < 1, so s = 1 / sqrt(80,000) = 0.0035355 with
    # 8 + 1 degrees of freedom. t(9, 1 - 0.01 / 5) = 3.8315..., t(9, 1 - 0.05 / 5) = 2.8214.
    (found,) = compare_rounds(latencies(0.0, 0.004, error=0.003), {})
    assert math.log(found.ratio) == pytest.approx(0.002)
    assert math.log(found.high) == pytest.approx(0.002 + 2.8214 * 0.0035355, abs=1e-6)
    assert math.log(found.low) == pytest.approx(0.002 - 3.8315 * 0.0035355, abs=5e-5)
    assert found.floor == pytest.approx(math.expm1(3.8315 * 0.0035355), abs=5e-5)


def test_one_round_decides_nothing_however_clear_it_looks() -> None:
    (found,) = compare_rounds(latencies(0.5), {})
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.lacking == "needs 2 rounds, had 1"


def test_a_round_without_a_finite_error_does_not_count() -> None:
    nothing = {"latency": changed(0.0, error=math.inf)}
    (found,) = compare_rounds([*latencies(0.5), nothing], {})
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.lacking == "needs 2 rounds, had 1"
    assert verdict([*latencies(0.5, 0.5), nothing]) is Verdict.REGRESSED


def test_rounds_that_contradict_each_other_decide_nothing() -> None:
    assert verdict(latencies(0.0, 0.25, error=0.001)) is Verdict.INCONCLUSIVE
    assert verdict(latencies(0.01, -0.007, -0.24, error=0.02)) is Verdict.INCONCLUSIVE


BETTER_TO_WORSE = [Verdict.IMPROVED, Verdict.PASSED, Verdict.INCONCLUSIVE, Verdict.REGRESSED]


@given(
    st.lists(st.floats(-0.3, 0.3), min_size=2, max_size=6),
    st.floats(0.001, 0.2),
    st.floats(0.001, 0.2),
)
def test_a_wider_tolerance_gives_no_worse_verdict(
    values: list[float], one: float, other: float
) -> None:
    rounds = latencies(*values)
    (strict,) = compare_rounds(rounds, {"latency": min(one, other)})
    (loose,) = compare_rounds(rounds, {"latency": max(one, other)})
    if strict.verdict in (Verdict.PASSED, Verdict.REGRESSED):
        rank = BETTER_TO_WORSE.index
        assert rank(loose.verdict) <= rank(strict.verdict)
    assert (strict.low, strict.ratio, strict.high) == (loose.low, loose.ratio, loose.high)


def test_times_and_throughput_have_at_least_the_tolerance_of_latency() -> None:
    rounds = [{name: changed(0.0) for name in ("latency", "throughput", "peak_memory")}] * 2
    wide = {compared.quantity: compared.tolerance for compared in compare_rounds(rounds, {})}
    assert wide == {"latency": 0.03, "throughput": 0.05, "peak_memory": 0.1}
    found = compare_rounds(rounds, {"latency": 0.2})
    assert {compared.quantity: compared.tolerance for compared in found} == {
        "latency": 0.2,
        "throughput": 0.2,
        "peak_memory": 0.1,
    }


def simulate(
    rng: np.random.Generator, effect: float, spread: float = 0.004, error: float = 0.002
) -> Verdict:
    """Decide as an item does: after each of the rounds, until it is decided."""
    scatter = rng.normal(0, math.hypot(spread, error), MOST_ROUNDS)
    rounds = latencies(*(effect + scatter), error=error)
    for count in range(LEAST_ROUNDS, MOST_ROUNDS + 1):
        found = verdict(rounds[:count])
        if found is not Verdict.INCONCLUSIVE:
            return found
    return Verdict.INCONCLUSIVE


def test_identical_stacks_are_hardly_ever_flagged() -> None:
    rng = np.random.default_rng(1)
    verdicts = [simulate(rng, 0.0) for _ in range(1000)]
    assert Verdict.REGRESSED not in verdicts
    assert verdicts.count(Verdict.PASSED) > 980


def test_real_slowdowns_are_found() -> None:
    rng = np.random.default_rng(3)
    verdicts = [simulate(rng, math.log(1.06)) for _ in range(500)]
    assert verdicts.count(Verdict.REGRESSED) > 450
    assert verdicts.count(Verdict.PASSED) == 0


def test_the_risks_at_the_edge_of_the_tolerance_are_those_that_are_declared() -> None:
    rng = np.random.default_rng(2)
    verdicts = [simulate(rng, math.log(1.03)) for _ in range(2000)]
    assert verdicts.count(Verdict.REGRESSED) <= 2000 * 0.01 + 15
    assert verdicts.count(Verdict.PASSED) <= 2000 * 0.05 + 30


def compare_sides(a: Side, b: Side, clock: Clock = "adj") -> list[Comparison]:
    figures = figures_of(Round(a, b), clock, batch_size=8)
    return compare_rounds([figures] * 2, {})


def test_every_quantity_is_compared() -> None:
    rng = np.random.default_rng(3)
    found = compare_sides(random_side(rng), random_side(rng, 2.0))
    verdicts = {compared.quantity: compared.verdict for compared in found}
    assert verdicts.pop("peak_memory") is Verdict.PASSED
    assert verdicts.pop("first_inference") is Verdict.PASSED
    regressed = {"latency", "cpu_time", "wall_time", "latency_p90", "latency_p95"}
    assert set(verdicts) == {*regressed, "throughput", "load_time"}
    assert set(verdicts.values()) == {Verdict.REGRESSED}


def test_a_ratio_of_throughput_is_b_over_a_and_regresses_where_it_falls() -> None:
    rng = np.random.default_rng(3)
    throughput = find(compare_sides(random_side(rng), random_side(rng, 2.0)), "throughput")
    assert throughput.ratio == pytest.approx(0.5, rel=0.02)
    assert throughput.low < 0.5 < throughput.high
    assert throughput.a == pytest.approx(8000, rel=0.02)


def test_a_wait_for_a_core_is_a_slowdown_by_the_wall_clock_only() -> None:
    rng = np.random.default_rng(4)
    a = random_side(rng)
    b = random_side(rng)
    wait = np.full(b.wall.shape, 0.001)
    found = compare_sides(a, random_side(rng, wall=b.wall + wait, wait=wait))
    assert find(found, "latency").verdict is Verdict.PASSED
    assert find(found, "wall_time").verdict is Verdict.REGRESSED
    assert verdict_of(found) is Verdict.REGRESSED


def test_a_candidate_that_burns_more_cores_for_the_same_latency_regresses_in_cpu_time() -> None:
    rng = np.random.default_rng(5)
    a = random_side(rng)
    b = random_side(rng)
    found = compare_sides(a, random_side(rng, wall=b.wall, cpu=2 * b.cpu))
    assert find(found, "latency").verdict is Verdict.PASSED
    assert verdict_of(found) is Verdict.REGRESSED


def test_a_percentile_of_too_few_calls_is_undecided_and_says_why() -> None:
    figure = changed(0.0, calls=40)
    round_of_40 = {"latency_p90": figure, "latency_p95": figure}
    p90, p95 = compare_rounds([round_of_40, round_of_40], {})
    assert p95.verdict is Verdict.INCONCLUSIVE
    assert p95.lacking == "needs 59 calls a round, had 40"
    assert p90.verdict is Verdict.PASSED


def with_load_time(rounds: list[dict[str, Figure]], value: float) -> list[dict[str, Figure]]:
    figure = Figure(0.1, 0.1 * math.exp(value), value, 0.0)
    return [{**figures, "load_time": figure} for figures in rounds]


def test_a_regressed_guard_waits_for_the_gates_to_be_decided() -> None:
    undecided = compare_rounds(with_load_time(latencies(0.03, 0.031), 2.2), {})
    assert [found.verdict for found in undecided] == [Verdict.INCONCLUSIVE, Verdict.REGRESSED]
    assert not is_decided(undecided, 2)
    assert verdict_of(undecided) is Verdict.REGRESSED
    decided = compare_rounds(with_load_time(latencies(0.0, 0.001), 2.2), {})
    assert is_decided(decided, 2)


def test_one_round_is_only_enough_where_the_outputs_are_wrong() -> None:
    assert not is_decided(compare_rounds(latencies(0.0), {}), 1)
    wrong = compare_accuracy("top1", np.ones(600, bool), np.zeros(600, bool), 0.01)
    assert is_decided([wrong], 1)


def test_an_undecided_guard_does_not_hold_up_the_item_and_a_gate_does() -> None:
    rounds = with_load_time(latencies(0.0, 0.0), 0.35)
    found = compare_rounds(rounds, {})
    assert [compared.verdict for compared in found] == [Verdict.PASSED, Verdict.INCONCLUSIVE]
    assert verdict_of(found) is Verdict.PASSED
    as_gates = compare_rounds(rounds, {}, ("latency", "load_time"))
    assert verdict_of(as_gates) is Verdict.INCONCLUSIVE


def test_a_clock_that_stands_still_decides_nothing() -> None:
    rng = np.random.default_rng(7)
    still = random_side(rng, cpu=np.zeros(PAIRS))
    cpu_time = find(compare_sides(still, still), "cpu_time")
    reason = "too few pairs, or a clock that stands still between two readings"
    assert cpu_time.lacking == reason
    assert cpu_time.verdict is Verdict.INCONCLUSIVE


def test_time_on_the_device_is_compared_where_that_is_the_clock() -> None:
    rng = np.random.default_rng(9)
    a = random_side(rng, device=np.full((PAIRS, CALLS), 1e-4))
    b = random_side(rng, device=np.full((PAIRS, CALLS), 1.5e-4))
    assert find(compare_sides(a, b, "device"), "latency").ratio == pytest.approx(1.5)
    assert find(compare_sides(a, b, "adj"), "latency").verdict is Verdict.PASSED


def test_start_up_times_that_are_short_on_both_sides_do_not_matter() -> None:
    rng = np.random.default_rng(10)
    short = random_side(rng, load_seconds=0.001, first_seconds=0.0005)
    four_times = random_side(rng, load_seconds=0.004, first_seconds=0.002)
    found = compare_sides(short, four_times)
    assert find(found, "load_time").verdict is Verdict.PASSED
    assert find(found, "first_inference").verdict is Verdict.PASSED


def test_start_up_times_that_anybody_notices_regress() -> None:
    rng = np.random.default_rng(10)
    noticed = random_side(rng, load_seconds=0.1, first_seconds=0.05)
    four_times = random_side(rng, load_seconds=0.4, first_seconds=0.2)
    found = compare_sides(noticed, four_times)
    assert find(found, "load_time").verdict is Verdict.REGRESSED
    assert find(found, "first_inference").verdict is Verdict.REGRESSED


@settings(max_examples=50)
@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 200))
def test_accuracy_regresses_only_where_losses_outweigh_chance_and_tolerance(
    lost: int, won: int, right: int
) -> None:
    count = lost + won + right + 1
    a = np.repeat([True, False, True, False], [lost, won, right, 1])
    b = np.repeat([False, True, True, False], [lost, won, right, 1])
    found = compare_accuracy("top1", a, b, 0.01)
    if found.verdict is Verdict.REGRESSED:
        assert lost - won > 0.01 * count
    if lost == 0:
        assert found.verdict is Verdict.PASSED
    assert found.ratio == pytest.approx((won - lost) / count)


@pytest.mark.parametrize(
    ("lost", "expected"),
    [(7, Verdict.REGRESSED), (5, Verdict.INCONCLUSIVE), (1, Verdict.PASSED)],
)
def test_losses_of_six_hundred_answers_are_judged_by_their_number(
    lost: int, expected: Verdict
) -> None:
    a = np.ones(600, bool)
    b = np.arange(600) >= lost
    assert compare_accuracy("top1", a, b, 0.01).verdict is expected


def test_an_item_without_a_gate_does_not_pass() -> None:
    assert verdict_of([]) is Verdict.INCONCLUSIVE
