"""Tests of the results of a run by item."""

from __future__ import annotations

from pytest_mlms.report.last_results import last_results, worst_first
from tests.support.result_lines import broken_limit, line_of, undecided


def test_of_an_item_that_ran_again_the_last_result_counts() -> None:
    results = [broken_limit(1), line_of(2), line_of(1)]
    assert [result["verdict"] for result in last_results(results)] == ["PASSED", "PASSED"]
    assert [result["case"] for result in last_results(results)] == ["here-cpu-b1", "here-cpu-b2"]


def test_the_worst_verdict_comes_first_and_of_equal_ones_the_smallest_margin() -> None:
    results = [line_of(1, margin=None), line_of(2), undecided(3), broken_limit(4), broken_limit(5)]
    cases = [result["case"].removeprefix("here-cpu-") for result in worst_first(results)]
    assert cases == ["b5", "b4", "b3", "b2", "b1"]
