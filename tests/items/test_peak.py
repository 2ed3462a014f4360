"""Tests of items that search the peak, with real agents."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.measure.load.evidence import Criterion
from tests.items.test_load import loads, write_manifest
from tests.support.project import Project
from tests.support.queues import Queue, service_times

__all__ = ["loads"]

SERVICE = 0.02  # seconds of a call, asleep
INSTANCES = 2
CRITERION = Criterion(limit=0.1, share=0.9, precision=0.2)
THRESHOLDS = "thresholds:\n  peak_rate: {min: 100000 /s}"
WRONG = 1.05  # times the true peak, which an end of the answer may be beyond by chance
DIES = "seconds: 0.002, die: 3000"
"""The warm-up has 500 calls at most, and a run of load some 1,000."""


def slowest_service(files: list[Path]) -> float:
    """Return the seconds that 95 % of the calls of each run took at most, with our own lag."""
    slowest = SERVICE
    for file in files:
        with np.load(file) as times:
            seconds = service_times(times["start"], times["end"], INSTANCES)
        slowest = max(slowest, float(np.percentile(seconds, 95)))
    return slowest


@pytest.mark.slow
def test_the_peak_of_a_model_of_fixed_time_is_measured(loads: Project) -> None:
    """The answer has the peak of M/D/2 inside; calls are as slow as the machine made them."""
    write_manifest(
        loads,
        "peak: {latency: 100 ms, percentile: 90, precision: 20 %}",
        options=f"seconds: {SERVICE}",
        more=f"  instances: {INSTANCES}\n{THRESHOLDS}",
    )
    result = loads.run("-k", "performance", "--mlms-budget", "20")
    result.assert_outcomes(failed=1)
    assert "peak_rate is not at least 100,000 /s" in result.stdout.str()
    (item,) = loads.items()
    peak = item["estimates"]["peak_rate"]
    found = item["peak"]
    assert found["good"] == peak["low"]
    assert found["seconds"] == pytest.approx(sum(probe["seconds"] for probe in item["probes"]))
    tried = {rate["rate"] for rate in found["rates"]}
    assert {probe["rate"] for probe in item["probes"]} == tried
    kept = item["artifacts"].items()
    runs = [loads.results / path for name, path in kept if name.startswith("load-")]
    assert len(runs) == len(item["probes"])
    assert found["good"] <= WRONG * Queue(SERVICE, INSTANCES).peak(CRITERION)
    bad = math.inf if found["bad"] is None else found["bad"]
    slow = Queue(slowest_service(runs), INSTANCES)
    assert WRONG * bad >= slow.peak(CRITERION)
    assert (found["good"] > 0 and bad < math.inf) or found["reason"]


def test_a_limit_below_the_fastest_call_fails_before_any_load(loads: Project) -> None:
    write_manifest(loads, "peak: {latency: 5 ms}", options="seconds: 0.02")
    result = loads.run("-k", "performance")
    result.assert_outcomes(failed=1)
    assert "the fastest call alone takes longer" in result.stdout.str()
    (item,) = loads.items()
    assert "probes" not in item


@pytest.mark.slow
def test_an_agent_that_dies_under_load_leaves_what_was_measured(loads: Project) -> None:
    write_manifest(loads, "peak: {latency: 100 ms, percentile: 90}", options=DIES)
    result = loads.run("-k", "performance")
    result.assert_outcomes(failed=1)
    (item,) = loads.items()
    assert item["probes"]
    assert any(name.startswith("load-") for name in item["artifacts"])
    assert any(name.startswith("part-") for name in item["artifacts"])
