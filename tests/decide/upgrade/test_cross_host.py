"""The comparison of two hosts as the two sides of an upgrade."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.decide.upgrade.cross_host import Visit, compare_sides, read_visit

A = "gpu=old"
B = "gpu=new"

STEADY = [1.0, 1.001, 0.999]
"""The values of three visits to a side that hardly drifts."""

FASTER = [0.8, 0.801, 0.799]
SLOWER = [1.2, 1.201, 1.199]


def visits(
    side: str, values: Sequence[float], case: str = "b1", quantity: str = "latency"
) -> list[Visit]:
    return [Visit(case, side, {quantity: value}) for value in values]


def compare(a: Sequence[float], b: Sequence[float], **tolerances: float) -> Comparison:
    """Return the comparison of the latencies of one case."""
    of_both = visits(A, a) + visits(B, b)
    found = compare_sides(of_both, A, B, tolerances)
    (comparison,) = found["b1"]
    return comparison


def result(**changes: Any) -> dict[str, Any]:
    """Return a line of results of the second visit to side A."""
    estimates = {
        "latency_p50": {"value": 0.25, "lacking": ""},
        "peak_memory": {"value": 1e9, "lacking": "the kernel can't reset the peak"},
        "accuracy": {"value": 1},
    }
    line = {
        "nodeid": f"m.yaml::test_performance[{A}#2-cuda-b1]",
        "kind": "performance",
        "stack": {"name": f"{A}#2"},
        "estimates": estimates,
    }
    return {**line, **changes}


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (STEADY, SLOWER, Verdict.REGRESSED),
        (STEADY, STEADY, Verdict.PASSED),
        (STEADY, FASTER, Verdict.IMPROVED),
        ([1.0, 1.2, 0.8], [1.2, 1.4, 1.0], Verdict.INCONCLUSIVE),
        ([1.0], [1.2], Verdict.INCONCLUSIVE),
    ],
)
def test_a_change_counts_only_beyond_the_drift_of_the_hosts(
    a: list[float], b: list[float], expected: Verdict
) -> None:
    assert compare(a, b).verdict is expected


def test_the_ratio_is_that_of_the_sides_and_inside_its_interval() -> None:
    comparison = compare(STEADY, SLOWER)
    assert comparison.ratio == pytest.approx(1.2, rel=0.001)
    assert comparison.low < comparison.ratio < comparison.high
    assert comparison.a == pytest.approx(1.0, rel=0.001)
    assert comparison.replicates == 3


def test_a_single_visit_of_each_side_says_what_is_missing() -> None:
    comparison = compare([1.0], [1.2])
    assert comparison.lacking == "needs 2 visits of each side"


def test_less_throughput_is_worse() -> None:
    of_a = visits(A, STEADY, quantity="throughput")
    of_b = visits(B, FASTER, quantity="throughput")
    found = compare_sides(of_a + of_b, A, B, {})
    (comparison,) = found["b1"]
    assert comparison.verdict is Verdict.REGRESSED
    assert comparison.low < comparison.ratio < comparison.high < 1


def test_the_drift_is_pooled_over_the_cases_of_a_side() -> None:
    quiet = []
    for side in (A, B):
        for case in ("b1", "b8", "b64"):
            quiet += visits(side, STEADY, case)
    noisy = visits(A, [1.0, 1.3, 0.8], "b2")
    noisy += visits(B, [1.0, 1.2, 0.9], "b2")
    (without_noise,) = compare_sides(quiet, A, B, {})["b1"]
    (with_noise,) = compare_sides(quiet + noisy, A, B, {})["b1"]
    assert with_noise.floor > without_noise.floor


def test_a_tolerance_of_the_user_replaces_the_default() -> None:
    slower = [1.1, 1.101, 1.099]
    assert compare(STEADY, slower).verdict is Verdict.REGRESSED
    assert compare(STEADY, slower, latency=0.2).verdict is Verdict.PASSED


def test_the_least_change_and_the_tolerance_of_latency_hold_as_in_upgrades() -> None:
    megabyte = 1 << 20

    def compared(quantity: str, a: float, b: float, **tolerances: float) -> Comparison:
        of_both = []
        for side, value, latency in ((A, a, 1.0), (B, b, 1.0)):
            of_both += [
                Visit("b1", side, {quantity: value * drift, "latency": latency * drift})
                for drift in STEADY
            ]
        found = {each.quantity: each for each in compare_sides(of_both, A, B, tolerances)["b1"]}
        return found[quantity]

    memory = compared("import_memory", 2 * megabyte, 2.5 * megabyte)
    assert (memory.verdict, memory.least_change) == (Verdict.PASSED, megabyte)
    assert compared("import_memory", 20 * megabyte, 25 * megabyte).verdict is Verdict.REGRESSED
    assert compared("throughput", 1.0, 0.9).verdict is Verdict.REGRESSED
    wide = compared("throughput", 1.0, 0.9, latency=0.2)
    assert (wide.verdict, wide.asked) == (Verdict.PASSED, 0.05)


def test_values_below_zero_are_compared_where_a_base_is_added_and_left_out_elsewhere() -> None:
    found = []
    for side, loading in ((A, -0.0004), (B, 0.002)):
        estimates = {"load_time": {"value": loading}, "peak_memory": {"value": -4096.0}}
        line = result(stack={"name": side}, nodeid=f"[{side}]", estimates=estimates)
        found += [read_visit(line)] * 3
    (comparison,) = compare_sides(filter(None, found), A, B, {})["[*]"]
    assert (comparison.quantity, comparison.verdict) == ("load_time", Verdict.PASSED)
    assert (comparison.a, comparison.tolerance) == (0.0, 0.2)


def test_hosts_that_are_alike_are_seldom_called_worse() -> None:
    draw = random.Random(7)

    def drifting() -> list[float]:
        return [2.0 ** draw.gauss(0, 0.05) for _ in range(3)]

    wrong = 0
    for _ in range(300):
        comparison = compare(drifting(), drifting(), latency=0.0)
        wrong += comparison.verdict is Verdict.REGRESSED
    assert wrong <= 12  # 1 % are 3; 12 or more have a chance of 1 in 20,000


def test_a_case_that_only_one_side_measured_is_left_out() -> None:
    assert compare_sides(visits(A, STEADY), A, B, {}) == {}


def test_a_gate_that_a_side_could_not_measure_is_open() -> None:
    of_both = [*visits(A, STEADY), *visits(B, STEADY), *visits(A, STEADY, quantity="peak_memory")]
    gates = {"peak_memory": 0.1, "energy_per_input": 0.1, "latency": 0.1}
    latency, memory = compare_sides(of_both, A, B, gates, gates)["b1"]
    assert latency.verdict is Verdict.PASSED
    assert (memory.quantity, memory.verdict) == ("peak_memory", Verdict.INCONCLUSIVE)
    assert (memory.tolerance, memory.lacking) == (0.1, "not measured on both sides")


def test_values_that_unlike_counters_tell_are_not_compared() -> None:
    of_both = [
        each._replace(counters={"device_memory": counter})
        for side, counter in ((A, "pool"), (B, "NVML"))
        for each in visits(side, STEADY, quantity="device_memory")
    ]
    (memory,) = compare_sides(of_both, A, B, {})["b1"]
    assert memory.verdict is Verdict.INCONCLUSIVE
    assert memory.lacking == "told by NVML and pool, which count different things"
    same = [each._replace(counters={"device_memory": "pool"}) for each in of_both]
    (memory,) = compare_sides(same, A, B, {})["b1"]
    assert memory.verdict is Verdict.PASSED


def test_a_visit_is_read_from_a_line_of_results() -> None:
    visit = read_visit(result())
    assert visit == Visit("m.yaml::test_performance[*-cuda-b1]", A, {"latency": 0.25})


@pytest.mark.parametrize("changes", [{"kind": "accuracy"}, {"stack": {"name": "here"}}])
def test_other_items_are_no_visits(changes: dict[str, Any]) -> None:
    assert read_visit(result(**changes)) is None
