"""Tests of the results of a run by item."""

from __future__ import annotations

from pytest_mlms.show.report.last_results import last_results
from tests.support.result_lines import broken_limit, line_of


def test_of_an_item_that_ran_again_the_last_result_counts() -> None:
    results = [broken_limit(1), line_of(2), line_of(1)]
    assert [result["verdict"] for result in last_results(results)] == ["PASSED", "PASSED"]
    assert [result["case"] for result in last_results(results)] == ["here-cpu-b1", "here-cpu-b2"]
