"""The comparison of two hosts as the two sides of an upgrade."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_mlms.records import Comparison
from pytest_mlms.upgrade.cross_host import Visit, compare_sides, read_visit

A = "gpu=old"
B = "gpu=new"


def visits(side: str, case: str, values: Sequence[float]) -> list[Visit]:
    return [Visit(case, side, {"latency": value}) for value in values]


def compare(a: Sequence[float], b: Sequence[float], **tolerances: float) -> Comparison:
    """Return the comparison of the latencies of one case."""
    found = compare_sides([*visits(A, "b1", a), *visits(B, "b1", b)], A, B, tolerances)
    (comparison,) = found["b1"]
    return comparison


def result(**changes: Any) -> dict[str, Any]:
    return {
        "nodeid": f"m.yaml::test_performance[{A}#2-cuda-b1]",
        "kind": "performance",
        "stack": {"name": f"{A}#2"},
        "estimates": {"latency_p50": {"value": 0.25}, "accuracy": {"value": 1}},
        **changes,
    }


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1.0, 1.001, 0.999], [1.2, 1.201, 1.199], "REGRESSED"),
        ([1.0, 1.001, 0.999], [1.0, 1.001, 0.999], "PASSED"),
        ([1.0, 1.001, 0.999], [0.8, 0.801, 0.799], "IMPROVED"),
        ([1.0, 1.2, 0.8], [1.2, 1.4, 1.0], "INCONCLUSIVE"),
        ([1.0], [1.2], "INCONCLUSIVE"),
    ],
)
def test_a_change_counts_only_beyond_the_drift_of_the_hosts(
    a: list[float], b: list[float], expected: str
) -> None:
    assert compare(a, b).verdict.value == expected


def test_the_ratio_is_that_of_the_sides_and_inside_its_interval() -> None:
    comparison = compare([1.0, 1.01, 0.99], [1.2, 1.21, 1.19])
    assert comparison.ratio == pytest.approx(1.2, rel=0.001)
    assert comparison.low < comparison.ratio < comparison.high
    assert comparison.a == pytest.approx(1.0, rel=0.001)
    assert comparison.replicates == 3


def test_a_single_visit_of_each_side_says_what_is_missing() -> None:
    assert compare([1.0], [1.2]).lacking == "needs 2 visits of each side"


def test_less_throughput_is_worse() -> None:
    sides = [
        Visit("b1", side, {"throughput": value})
        for side, values in ((A, [100.0, 101.0, 99.0]), (B, [50.0, 51.0, 49.0]))
        for value in values
    ]
    (comparison,) = compare_sides(sides, A, B, {})["b1"]
    assert comparison.verdict.value == "REGRESSED"
    assert comparison.low < comparison.ratio < comparison.high < 1


def test_the_drift_is_pooled_over_the_cases_of_a_side() -> None:
    quiet = []
    for side in (A, B):
        for case in ("b1", "b8", "b64"):
            quiet += visits(side, case, [1.0, 1.001, 0.999])
    noisy = visits(A, "b2", [1.0, 1.3, 0.8]) + visits(B, "b2", [1.0, 1.2, 0.9])
    without_noise = compare_sides(quiet, A, B, {})
    with_noise = compare_sides(quiet + noisy, A, B, {})
    assert with_noise["b1"][0].floor > without_noise["b1"][0].floor


def test_a_tolerance_of_the_user_replaces_the_default() -> None:
    a = [1.0, 1.001, 0.999]
    b = [1.1, 1.101, 1.099]
    assert compare(a, b, latency=0.2).verdict.value == "PASSED"


def test_hosts_that_are_alike_are_seldom_called_worse() -> None:
    draw = random.Random(7)
    wrong = 0
    for _ in range(300):
        a = [2.0 ** draw.gauss(0, 0.05) for _ in range(3)]
        b = [2.0 ** draw.gauss(0, 0.05) for _ in range(3)]
        wrong += compare(a, b, latency=0.0).verdict.value == "REGRESSED"
    assert wrong <= 12  # 1 % are 3; 12 or more have a chance of 1 in 20,000


def test_a_case_that_only_one_side_measured_is_left_out() -> None:
    assert compare_sides(visits(A, "b1", [1.0, 1.1]), A, B, {}) == {}


def test_a_visit_is_read_from_a_line_of_results() -> None:
    visit = read_visit(result())
    assert visit == Visit("m.yaml::test_performance[*-cuda-b1]", A, {"latency": 0.25})


@pytest.mark.parametrize("changes", [{"kind": "accuracy"}, {"stack": {"name": "here"}}])
def test_other_items_are_no_visits(changes: dict[str, Any]) -> None:
    assert read_visit(result(**changes)) is None
