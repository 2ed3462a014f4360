"""Early ends of performance items."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.project import HANG_GUARD, PREDICTORS, Project


@pytest.fixture
def far_limits(project: Project) -> Project:
    """A project whose limits no machine breaks, however busy it is."""
    project.use_faulty(seconds=0.01)
    project.set_thresholds("  latency_p50: {max: 60 min}\n  peak_memory: {max: 1000 GiB}")
    return project


def measure(project: Project, *options: str) -> dict[str, Any]:
    """Run the performance item as a user would, and return its line of results."""
    result = project.pytester.runpytest_subprocess(
        "--mlms-manifests=manifests",
        f"--mlms-predictors={PREDICTORS}",
        "--mlms-budget=600",
        "-k",
        "performance",
        *options,
        timeout=HANG_GUARD,
    )
    result.assert_outcomes(passed=1)
    (item,) = project.items()
    return item


def test_an_item_whose_limits_are_far_away_ends_early(far_limits: Project) -> None:
    item = measure(far_limits)
    assert item["ended"] == "early"
    (look,) = item["looks"]
    assert look["processes"] == 3
    assert [process["in_full"] for process in item["processes"]] == [False] * 3
    p50 = item["estimates"]["latency_p50"]
    assert p50["confidence"] == look["confidence"]
    assert p50["low"] < p50["value"] < p50["high"]
    assert item["estimates"]["latency_p95"]["lacking"] == ""  # as in full


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--mlms-full", "--mlms-duration=1"])
def test_an_item_is_measured_in_full_on_demand(far_limits: Project, option: str) -> None:
    item = measure(far_limits, option)
    assert item["ended"] == "decided"
    assert [process["in_full"] for process in item["processes"]] == [True] * 3


def test_an_item_without_limits_says_that_it_was_measured_in_full(project: Project) -> None:
    project.use_faulty(seconds=0.01)
    item = measure(project, "-Wignore:no limit judges")
    assert item["ended"] == "no limits"
    assert [process["in_full"] for process in item["processes"]] == [True] * 3
