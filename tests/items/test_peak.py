"""Tests of items that search the peak, with real agents."""

from __future__ import annotations

import pytest

from tests.items.test_load import loads, write_manifest
from tests.support.project import Project

__all__ = ["loads"]

DIES = "seconds: 0.002, die: 3000"
"""The warm-up has 500 calls at most, and a run of load some 1,000."""


@pytest.mark.slow
def test_the_peak_of_a_model_of_fixed_time_is_measured(loads: Project) -> None:
    write_manifest(
        loads,
        "peak: {latency: 100 ms, percentile: 90, precision: 20 %}",
        options="seconds: 0.02",
        more="  instances: 2\nthresholds:\n  peak_rate: {min: 100000 /s}\n  latency_p50: {max: 1 ns}",
    )
    result = loads.run("-k", "performance", "--mlms-budget", "20")
    result.assert_outcomes(failed=1)
    assert "peak_rate is not at least 100,000 /s" in result.stdout.str()
    assert "latency_p50" not in result.stdout.str(), "a peak has no such quantity"
    (item,) = loads.items()
    peak = item["estimates"]["peak_rate"]
    found = item["peak"]
    assert found["good"] == peak["low"]  # 0 on a machine that is busy with other work
    assert found["seconds"] == pytest.approx(sum(probe["seconds"] for probe in item["probes"]))
    tried = {rate["rate"] for rate in found["rates"]}
    assert {probe["rate"] for probe in item["probes"]} == tried
    runs = [name for name in item["artifacts"] if name.startswith("load-")]
    assert len(runs) == len(item["probes"])


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
