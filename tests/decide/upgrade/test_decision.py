"""The decision rule of an upgrade, on made-up and on simulated rounds, and on counts of stalls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.core.quantities import upgrade_rules
from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.decision import (
    compare_accuracy,
    compare_rounds,
    compare_stalls,
    is_decided,
    verdict_of,
)
from pytest_mlms.decide.upgrade.figures import Figure, figures_of
from pytest_mlms.decide.upgrade.round_estimate import LEAST_ROUNDS, MOST_ROUNDS, ROUNDS_TO_FAIL
from pytest_mlms.decide.upgrade.rounds import Array, Clock, Round, Side
from tests.support.upgrades import (
    CALLS,
    PAIRS,
    SCATTER,
    alike,
    changed,
    find,
    latencies,
    random_side,
)

PASSED = Verdict.PASSED
IMPROVED = Verdict.IMPROVED
REGRESSED = Verdict.REGRESSED
INCONCLUSIVE = Verdict.INCONCLUSIVE
Rounds = list[dict[str, Figure]]


def verdict(rounds: Rounds) -> Verdict:
    return verdict_of(compare_rounds(rounds, {}))


def latency_of(rounds: Rounds, tolerance: float = 0.03) -> Comparison:
    """Return the comparison of latency, the only quantity of these rounds."""
    (found,) = compare_rounds(rounds, {"latency": tolerance})
    return found


def verdicts_of(comparisons: Sequence[Comparison]) -> list[Verdict]:
    return [compared.verdict for compared in comparisons]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.0, 0.001), PASSED),
        ((0.10, 0.098), REGRESSED),
        ((0.05, 0.051), REGRESSED),
        ((0.029, 0.0305), INCONCLUSIVE),
        ((-0.10, -0.11), IMPROVED),
        ((-0.03, -0.029), PASSED),
    ],
)
def test_the_interval_decides(values: tuple[float, ...], expected: Verdict) -> None:
    assert verdict(4 * latencies(*values)) is expected


def test_the_rule_agrees_with_a_calculation_by_hand() -> None:
    # The mean of 0, 0.002 and 0.004, twice, is 0.002, their deviation 0.00178885, its error
    # 0.00178885 / sqrt(6) = 0.00073030 with 5 degrees of freedom. The risks of a look are
    # 0.0037 / (1 + 4 ln(12 / 8)) = 0.0014115 and 0.037 / (1 + 3 ln 2) = 0.0120178, their quantiles
    # t(5) = 5.4513 and 3.1985.
    found = latency_of(2 * latencies(0.0, 0.004, 0.002))
    assert math.log(found.ratio) == pytest.approx(0.002)
    assert math.log(found.high) == pytest.approx(0.002 + 3.1985 * 0.0007303, abs=1e-6)
    assert math.log(found.low) == pytest.approx(0.002 - 5.4513 * 0.0007303, abs=1e-6)
    assert math.log1p(found.floor) == pytest.approx(5.4513 * 0.0007303, abs=1e-6)
    # Twelve such rounds: 0.00073030 / sqrt(2) = 0.00051640; t(11, 1 - 0.0014115) = 3.8241, t(11, 0.8)
    # = 0.8755.
    above = (3.8241 + 0.8755) * 0.0005164
    assert math.log1p(found.detectable) == pytest.approx(math.log(1.03) + above, abs=1e-6)


def test_one_round_decides_nothing_however_clear_it_looks() -> None:
    found = latency_of(latencies(0.5))
    assert found.verdict is INCONCLUSIVE
    assert found.lacking == "needs 6 rounds, had 1"
    assert (found.low, found.high) == (0, math.inf)


@pytest.mark.parametrize("count", range(1, ROUNDS_TO_FAIL))
def test_a_few_rounds_fail_nothing_however_clear_they_look(count: int) -> None:
    found = latency_of(count * latencies(0.5))
    assert found.verdict is INCONCLUSIVE
    if count >= LEAST_ROUNDS:
        assert found.lacking == f"needs 8 rounds to fail, had {count}"


ALIKE = (0.001, -0.002, 0.002, 0.0, -0.001, 0.001, 0.0, -0.001, 0.002, -0.002)
FAR = math.log(1.4)


def test_processes_that_are_far_away_on_both_sides_do_not_hide_what_the_others_agree_on() -> None:
    assert verdict(latencies(*ALIKE, FAR, -FAR)) is PASSED
    slower = [value + 0.06 for value in ALIKE]
    assert verdict(latencies(*slower, FAR, -FAR)) is REGRESSED


def test_processes_that_are_far_away_on_one_side_are_a_part_of_the_mean() -> None:
    assert verdict(latencies(*ALIKE, FAR)) is INCONCLUSIVE
    assert verdict(latencies(*ALIKE, -FAR)) is PASSED
    slower = [value + 0.06 for value in ALIKE]
    assert verdict(latencies(*slower, -FAR)) is INCONCLUSIVE
    assert verdict(latencies(*slower, FAR)) is REGRESSED


def test_the_order_of_start_is_left_out_where_it_can_be_told() -> None:
    orders = 4 * [1, -1]
    values = [0.05 * order + value for order, value in zip(orders, ALIKE, strict=False)]
    rounds = latencies(*values)
    assert verdict(rounds) is INCONCLUSIVE
    (found,) = compare_rounds(rounds, {}, orders=orders)
    assert found.verdict is PASSED
    assert math.log(found.ratio) == pytest.approx(np.mean(ALIKE[:8]), abs=1e-9)
    (unknown,) = compare_rounds(rounds, {}, orders=8 * [1])
    assert unknown.verdict is INCONCLUSIVE


NOTHING = {"latency": changed(0.0, error=math.inf)}


def test_a_round_without_a_finite_error_does_not_count() -> None:
    found = latency_of([*5 * latencies(0.0), NOTHING])
    assert found.verdict is INCONCLUSIVE
    assert found.lacking == "needs 6 rounds, had 5"
    assert latency_of([*7 * latencies(0.5), NOTHING]).verdict is INCONCLUSIVE
    enough = latency_of([*alike(0.5), NOTHING])
    assert enough.verdict is REGRESSED


@pytest.mark.parametrize(
    ("values", "error"), [((0.0, 0.25, 0.24), 0.001), ((0.01, -0.007, -0.24), 0.02)]
)
def test_rounds_that_contradict_each_other_decide_nothing(
    values: tuple[float, ...], error: float
) -> None:
    assert verdict(latencies(*values, error=error)) is INCONCLUSIVE


BETTER_TO_WORSE = [IMPROVED, PASSED, INCONCLUSIVE, REGRESSED]
shares = st.floats(0.001, 0.2)


@given(st.lists(st.floats(-0.3, 0.3), min_size=3, max_size=12), shares, shares)
def test_a_wider_tolerance_gives_no_worse_verdict(
    values: list[float], one: float, other: float
) -> None:
    rounds = latencies(*values)
    strict = latency_of(rounds, min(one, other))
    loose = latency_of(rounds, max(one, other))
    assert (strict.low, strict.high) == (loose.low, loose.high)
    if strict.verdict in (PASSED, REGRESSED):
        rank = BETTER_TO_WORSE.index
        assert rank(loose.verdict) <= rank(strict.verdict)


EQUAL = {name: changed(0.0, a=1e8) for name in ("latency", "throughput", "peak_memory")}


@pytest.mark.parametrize(
    ("tolerances", "expected"),
    [
        ({}, [0.03, 0.05, 0.1]),
        ({"latency": 0.2}, [0.2, 0.2, 0.1]),
        ({"latency": 0.2, "throughput": 0.01}, [0.2, 0.01, 0.1]),
    ],
)
def test_times_and_throughput_have_at_least_the_tolerance_of_latency(
    tolerances: dict[str, float], expected: list[float]
) -> None:
    found = compare_rounds([EQUAL, EQUAL], tolerances)
    assert [compared.tolerance for compared in found] == expected


def short_calls(microseconds: float, change: float) -> Rounds:
    """Return rounds of calls that take so long on side A, and ``change`` µs longer on B."""
    a = 1e-6 * microseconds
    b = a + 1e-6 * change
    figure = Figure(a, b, math.log(b / a), 0.002, 400)
    return [{"latency": figure, "cpu_time": figure}] * 8


@pytest.mark.parametrize(
    ("microseconds", "change", "expected"),
    [
        (7.02, 0.37, PASSED),
        (7.02, -0.37, PASSED),
        (7.02, 1.0, REGRESSED),
        (19.0, 0.3, PASSED),
        (100.0, 6.0, REGRESSED),
    ],
)
def test_a_short_call_is_judged_by_an_absolute_change(
    microseconds: float, change: float, expected: Verdict
) -> None:
    found = compare_rounds(short_calls(microseconds, change), {})
    assert verdicts_of(found) == [expected, expected]


@pytest.mark.parametrize(
    ("microseconds", "share", "tolerance", "least_change"),
    [
        (6.0, 0.03, 0.1, 0.6e-6),
        (6.0, 0.2, 0.2, 0.0),
        (20.1, 0.03, 0.03, 0.0),
        (20.1, 0.01, 0.6 / 20.1, 0.6e-6),
    ],
)
def test_a_comparison_says_whether_the_share_or_the_least_change_decided(
    microseconds: float, share: float, tolerance: float, least_change: float
) -> None:
    found = compare_rounds(short_calls(microseconds, 0.0), {"latency": share})
    latency = find(found, "latency")
    assert latency.tolerance == pytest.approx(tolerance)
    assert latency.least_change == least_change


def test_a_named_tolerance_of_another_time_is_kept_for_short_calls() -> None:
    found = compare_rounds(short_calls(6.0, 0.0), {"cpu_time": 0.02})
    assert find(found, "cpu_time").tolerance == 0.02


def simulate(rng: np.random.Generator, slowdown: float, deviation: float) -> Verdict:
    """Decide as an item does: after each of the rounds, until it is decided."""
    scatter = rng.normal(0, deviation, MOST_ROUNDS)
    values = math.log1p(slowdown) + scatter
    rounds = latencies(*values)
    for count in range(LEAST_ROUNDS, MOST_ROUNDS + 1):
        found = verdict(rounds[:count])
        if found is not INCONCLUSIVE:
            return found
    return INCONCLUSIVE


def simulate_many(
    seed: int, slowdown: float, count: int, deviation: float = 0.004
) -> list[Verdict]:
    rng = np.random.default_rng(seed)
    return [simulate(rng, slowdown, deviation) for _ in range(count)]


def test_identical_stacks_are_hardly_ever_flagged() -> None:
    found = simulate_many(seed=1, slowdown=0.0, count=1000)
    assert found.count(REGRESSED) == 0
    assert found.count(PASSED) > 980


def test_real_slowdowns_are_found() -> None:
    found = simulate_many(seed=3, slowdown=0.05, count=500)
    assert found.count(REGRESSED) > 490
    assert found.count(PASSED) == 0


@pytest.mark.parametrize("deviation", [0.004, 0.042])
def test_the_risks_at_the_edge_are_those_that_are_declared_however_much_rounds_differ(
    deviation: float,
) -> None:
    found = simulate_many(seed=2, slowdown=0.03, count=1000, deviation=deviation)
    assert found.count(REGRESSED) <= 1000 * 0.01 + 9
    assert found.count(PASSED) <= 1000 * 0.05 + 20


RNG = np.random.default_rng(3)
SIDE = random_side(RNG)


def compare_sides(a: Side, b: Side, clock: Clock = "adj") -> list[Comparison]:
    """Return the comparisons of equal rounds of these sides."""
    figures = figures_of(Round(a, b), clock, batch_size=8)
    return compare_rounds(ROUNDS_TO_FAIL * [figures], {})


def test_every_quantity_is_compared() -> None:
    found = compare_sides(SIDE, random_side(RNG, 2.0))
    verdicts = {compared.quantity: compared.verdict for compared in found}
    assert verdicts.pop("peak_memory") is PASSED
    assert verdicts.pop("first_inference") is PASSED
    slower = {"latency", "cpu_time", "wall_time", "latency_p90", "latency_p95"}
    assert set(verdicts) == {*slower, "throughput", "load_time"}
    assert set(verdicts.values()) == {REGRESSED}


def test_a_ratio_of_throughput_is_b_over_a_and_regresses_where_it_falls() -> None:
    throughput = find(compare_sides(SIDE, random_side(RNG, 2.0)), "throughput")
    assert throughput.verdict is REGRESSED
    assert throughput.ratio == pytest.approx(0.5, rel=0.02)
    assert throughput.low <= throughput.ratio <= throughput.high


def test_a_wait_for_a_core_is_a_slowdown_by_the_wall_clock_only() -> None:
    wait = np.full((PAIRS, CALLS), 0.001)
    delayed = random_side(RNG, wall=SIDE.wall + wait, wait=wait)
    found = compare_sides(SIDE, delayed)
    assert find(found, "latency").verdict is PASSED
    assert find(found, "wall_time").verdict is REGRESSED
    assert verdict_of(found) is REGRESSED


def test_a_candidate_that_burns_more_cores_for_the_same_latency_regresses_in_cpu_time() -> None:
    greedy = random_side(RNG, cpu=2 * SIDE.cpu)
    found = compare_sides(SIDE, greedy)
    assert find(found, "latency").verdict is PASSED
    assert find(found, "cpu_time").verdict is REGRESSED
    assert verdict_of(found) is REGRESSED


def test_threads_of_the_candidate_that_take_its_core_in_one_turn_of_ten_regress_in_cpu_time() -> (
    None
):
    taken = np.zeros((PAIRS, CALLS))
    taken[::10] = 5 * SIDE.wall[::10]
    greedy = random_side(RNG, wall=SIDE.wall + taken, wait=taken, cpu=SIDE.cpu + taken.mean(axis=1))
    found = compare_sides(SIDE, greedy)
    assert [each.quantity for each in found if each.verdict is REGRESSED] == ["cpu_time"]


def test_a_percentile_of_too_few_calls_is_undecided_and_says_why() -> None:
    figure = changed(0.0, calls=40)
    few = {"latency_p90": figure, "latency_p95": figure}
    p90, p95 = compare_rounds(6 * [few], {})
    assert p95.verdict is INCONCLUSIVE
    assert p95.lacking == "needs 59 calls a round, had 40"
    assert p90.verdict is PASSED


def test_rounds_with_too_few_calls_for_a_percentile_count_for_nothing() -> None:
    few = {"latency_p95": changed(0.0, calls=13)}
    late = {"latency_p95": changed(0.5, calls=59)}
    (found,) = compare_rounds([*4 * [few], *5 * [late]], {})
    assert (found.verdict, found.lacking) == (INCONCLUSIVE, "needs 59 calls a round, had 13")
    (found,) = compare_rounds([*4 * [few], *7 * [late]], {})
    assert (found.verdict, found.lacking) == (INCONCLUSIVE, "needs 8 rounds to fail, had 7")
    (found,) = compare_rounds([*4 * [few], *8 * [late]], {})
    assert found.verdict is REGRESSED
    assert found.ratio == pytest.approx(math.exp(0.5))


def with_load_time(rounds: Rounds, value: float) -> Rounds:
    """Return the rounds with a time to load that changed by exp(value)."""
    figure = changed(value, error=0.0)
    return [{**figures, "load_time": figure} for figures in rounds]


def test_a_regressed_guard_waits_for_the_gates_to_be_decided() -> None:
    undecided = compare_rounds(with_load_time(4 * latencies(0.029, 0.03), 9.0), {})
    assert verdicts_of(undecided) == [INCONCLUSIVE, REGRESSED]
    assert not is_decided(undecided, 8)
    assert verdict_of(undecided) is REGRESSED
    decided = compare_rounds(with_load_time(4 * latencies(0.0, 0.001), 9.0), {})
    assert is_decided(decided, 8)


def test_a_rate_whose_interval_begins_at_0_is_no_error() -> None:
    (latency,) = compare_rounds(latencies(*[0.0] * 6), {})
    open_rate = latency.but(
        quantity="throughput", gate=False, ratio=0.5, low=0.0, verdict=INCONCLUSIVE
    )
    assert is_decided([latency, open_rate], 6)


def test_a_guard_that_looks_worse_than_its_tolerance_needs_further_rounds() -> None:
    suspect = compare_rounds(with_load_time(6 * latencies(0.0), 0.6), {})
    assert verdicts_of(suspect) == [PASSED, INCONCLUSIVE]
    assert not is_decided(suspect, 6)
    assert verdict_of(compare_rounds(with_load_time(alike(0.0), 0.6), {})) is REGRESSED
    within = compare_rounds(with_load_time(6 * latencies(0.0), 0.1), {})
    assert is_decided(within, 6)


def test_one_round_is_not_enough_for_speed() -> None:
    assert not is_decided(compare_rounds(latencies(0.0), {}), 1)


def test_one_round_is_enough_where_the_outputs_are_wrong() -> None:
    wrong = compare_accuracy("top1", np.ones(600, bool), np.zeros(600, bool), 0.01)
    assert is_decided([wrong], 1)


def test_an_undecided_guard_does_not_hold_up_the_item_and_a_gate_does() -> None:
    rounds = latencies(*6 * [0.0])
    for figures, value in zip(rounds, 2 * (-0.1, 0.15, 0.4), strict=True):
        figures["load_time"] = changed(value, error=0.0)
    found = compare_rounds(rounds, {})
    assert verdicts_of(found) == [PASSED, INCONCLUSIVE]
    assert is_decided(found, 6)
    assert verdict_of(found) is PASSED
    as_gates = compare_rounds(rounds, {}, ("latency", "load_time"))
    assert verdict_of(as_gates) is INCONCLUSIVE


def test_a_clock_that_stands_still_decides_nothing() -> None:
    still = random_side(RNG, cpu=np.zeros(PAIRS))
    cpu_time = find(compare_sides(still, still), "cpu_time")
    reason = "too few pairs, or a clock that stands still or leaps between two readings"
    assert cpu_time.lacking == reason
    assert cpu_time.verdict is INCONCLUSIVE


def test_time_on_the_device_is_compared_where_that_is_the_clock() -> None:
    events = np.full((PAIRS, CALLS), 1e-4)
    a = random_side(RNG, device=events)
    b = random_side(RNG, device=1.5 * events)
    assert find(compare_sides(a, b, "device"), "latency").ratio == pytest.approx(1.5)
    assert find(compare_sides(a, b, "adj"), "latency").verdict is PASSED


@pytest.mark.parametrize(("seconds", "expected"), [(0.001, PASSED), (0.1, REGRESSED)])
def test_start_up_times_matter_only_where_anybody_notices_them(
    seconds: float, expected: Verdict
) -> None:
    a = random_side(RNG, load_seconds=seconds, first_seconds=seconds / 2)
    b = random_side(RNG, load_seconds=4 * seconds, first_seconds=2 * seconds)
    found = compare_sides(a, b)
    assert find(found, "load_time").verdict is expected
    assert find(found, "first_inference").verdict is expected


def memory_verdicts(buffer: float, worse: float, count: int) -> list[Verdict]:
    """Return the verdicts of 2,000 items on memory after ``count`` rounds.

    Every other process keeps a buffer, which is this share of its memory, and sizes differ by 0.1 %
    beside that (docs/methodology.md). The candidate needs ``worse`` more memory.
    """
    rng = np.random.default_rng(count)
    verdicts = []
    for _ in range(2000):
        noise = rng.normal(0, 0.001, (2, count))
        a, b = np.log1p(buffer * rng.integers(2, size=(2, count))) + noise
        changes = b - a + math.log1p(worse)
        rounds = [{"peak_memory": changed(value, error=0.0, a=1e8)} for value in changes]
        (found,) = compare_rounds(rounds, {})
        verdicts.append(found.verdict)
    return verdicts


@pytest.mark.parametrize("count", [ROUNDS_TO_FAIL, 10, MOST_ROUNDS])
def test_memory_that_differs_between_processes_is_flagged_no_more_often_than_declared(
    count: int,
) -> None:
    assert memory_verdicts(0.034, 0.10, count).count(REGRESSED) <= 2000 * 0.01
    assert memory_verdicts(0.034, 0.0, count).count(REGRESSED) == 0
    assert memory_verdicts(0.08, 0.0, count).count(REGRESSED) == 0


def test_memory_that_grew_by_a_quarter_is_flagged() -> None:
    assert memory_verdicts(0.034, 0.25, 8).count(REGRESSED) > 1900


def answers(lost: int, won: int, right: int) -> tuple[Array, Array]:
    """Return which answers of each side are right; one is wrong on both."""
    counts = [lost, won, right, 1]
    a = np.repeat([True, False, True, False], counts)
    b = np.repeat([False, True, True, False], counts)
    return a, b


@settings(max_examples=50)
@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 200))
def test_accuracy_regresses_only_where_losses_outweigh_chance_and_tolerance(
    lost: int, won: int, right: int
) -> None:
    a, b = answers(lost, won, right)
    found = compare_accuracy("top1", a, b, 0.01)
    count = len(a)
    assert found.ratio == pytest.approx((won - lost) / count)
    if found.verdict is REGRESSED:
        assert lost - won > 0.01 * count
    if found.verdict is PASSED:
        assert lost - won < 0.01 * count


def test_accuracy_with_a_tolerance_of_zero_is_about_the_very_inputs() -> None:
    same = np.ones(20, bool)
    assert compare_accuracy("top1", same, same, 0.0).verdict is PASSED
    assert compare_accuracy("top1", same, np.arange(20) >= 1, 0.0).verdict is INCONCLUSIVE
    assert compare_accuracy("top1", same, np.arange(20) >= 10, 0.0).verdict is REGRESSED


def test_twenty_inputs_cannot_show_that_a_loss_is_within_one_percent() -> None:
    same = np.ones(20, bool)
    assert compare_accuracy("top1", same, same, 0.01).verdict is INCONCLUSIVE


@pytest.mark.parametrize(
    ("lost", "expected"), [(16, REGRESSED), (7, INCONCLUSIVE), (2, INCONCLUSIVE), (1, PASSED)]
)
def test_losses_of_six_hundred_answers_are_judged_by_their_number(
    lost: int, expected: Verdict
) -> None:
    a = np.ones(600, bool)
    b = np.arange(600) >= lost
    assert compare_accuracy("top1", a, b, 0.01).verdict is expected


def test_an_item_without_a_gate_does_not_pass() -> None:
    assert verdict_of([]) is INCONCLUSIVE


MIB = 1 << 20


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (8 * MIB, 8.9 * MIB, PASSED),
        (2 * MIB, 2.9 * MIB, PASSED),
        (2 * MIB, 3.2 * MIB, REGRESSED),
        (50 * MIB, 61 * MIB, REGRESSED),
    ],
)
def test_a_change_of_memory_of_less_than_a_mebibyte_is_none(
    a: float, b: float, verdict: Verdict
) -> None:
    rounds = [{"peak_memory": changed(math.log(b / a) + 1e-4 * at, 0.0, a=a)} for at in range(12)]
    (compared,) = compare_rounds(rounds, {})
    assert compared.verdict is verdict


@pytest.mark.parametrize(
    ("quantity", "a", "b"),
    [("load_time", 0.053, 0.092), ("start_time", 1.0, 1.4), ("start_time", 1.0, 5.0)],
)
def test_a_start_that_is_clearly_slower_regresses(quantity: str, a: float, b: float) -> None:
    base = upgrade_rules()[quantity].base
    change = math.log((b + base) / (a + base))
    rounds = alike(0.0) + alike(0.0)
    for figures, scatter in zip(rounds, [*SCATTER, *SCATTER], strict=True):
        figures[quantity] = Figure(a, b, change + 0.02 * scatter, 0.0)
    found = find(compare_rounds(rounds, {}), quantity)
    assert found.verdict is REGRESSED


def stalls(counts: Iterable[tuple[int, int]], calls: int = 600) -> list[Mapping[str, Figure]]:
    """Return rounds in which so many calls of A and B stalled."""
    return [
        {"stalls": Figure(a / calls, b / calls, math.log((b + 0.5) / (a + 0.5)), 0.0, calls)}
        for a, b in counts
    ]


def gate_on(rounds: list[Mapping[str, Figure]]) -> Comparison:
    compared = compare_stalls(rounds, tolerance=0.5)
    assert compared is not None
    return compared


def decided(random: np.random.Generator, times: float, spread: float) -> Verdict:
    """Return the verdict of a gate whose B stalls so many ``times`` as often as A.

    Processes stall as often as a gamma distribution of deviation ``spread`` says.
    """
    rounds: list[Mapping[str, Figure]] = []
    verdict = Verdict.INCONCLUSIVE
    while verdict is Verdict.INCONCLUSIVE and len(rounds) < MOST_ROUNDS:
        rate = random.gamma(spread**-2, spread**2, size=2) if spread else np.ones(2)
        a, b = random.poisson(12 * rate * (1, times))
        rounds += stalls([(int(a), int(b))])
        if len(rounds) >= LEAST_ROUNDS:
            verdict = gate_on(rounds).verdict
    return verdict


@pytest.mark.parametrize("spread", [0.0, 0.7])
def test_a_gate_on_stalls_passes_at_its_tolerance_as_rarely_as_is_declared(spread: float) -> None:
    random = np.random.default_rng(5)
    found = [decided(random, 1.5, spread) for _ in range(300)]
    assert found.count(Verdict.PASSED) <= 300 * 0.05 + 8
    assert found.count(Verdict.REGRESSED) <= 300 * 0.01 + 4


def test_a_gate_on_stalls_passes_where_both_sides_stall_alike_and_often() -> None:
    passed = gate_on(stalls([(30, 30), (28, 33), (33, 28), (31, 29), (29, 31), (30, 30)]))
    assert passed.verdict is Verdict.PASSED
    assert passed.high < 1.5


def test_rounds_that_contradict_each_other_pass_no_gate_on_stalls() -> None:
    found = gate_on(stalls([(90, 5), (5, 30), (5, 30), (5, 30), (90, 5), (5, 30)]))
    assert found.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("rounds", "calls", "expected"),
    [
        (6, 600, Verdict.PASSED),
        (6, 30, Verdict.INCONCLUSIVE),  # one call in a hundred may stall and be in none
        (5, 600, Verdict.INCONCLUSIVE),
    ],
)
def test_a_candidate_that_never_stalls_passes_after_the_calls_and_rounds_that_show_it(
    rounds: int, calls: int, expected: Verdict
) -> None:
    assert gate_on(stalls(rounds * [(0, 0)], calls)).verdict is expected


def test_a_gate_on_stalls_that_is_open_needs_further_rounds() -> None:
    open_gate = gate_on(stalls(6 * [(3, 3)]))
    assert open_gate.verdict is Verdict.INCONCLUSIVE
    assert not is_decided([open_gate], 6)


def test_stalls_of_b_alone_that_are_not_yet_shown_need_further_rounds() -> None:
    suspect = compare_stalls(stalls([*4 * [(0, 1)], (0, 2), (0, 2)]))
    assert suspect is not None
    assert not suspect.gate
    assert math.isinf(suspect.high)
    assert not is_decided([suspect], 6)
