"""Tests of items that MLPerf's LoadGen measures, with real agents."""

from __future__ import annotations

import importlib.util

import pytest

from tests.items.test_load import loads, write_manifest
from tests.support.project import Project

__all__ = ["loads"]

needs_loadgen = pytest.mark.skipif(
    importlib.util.find_spec("mlperf_loadgen") is None,
    reason="needs the package mlcommons_loadgen",
)


@needs_loadgen
@pytest.mark.slow
def test_loadgen_measures_each_scenario_and_its_logs_are_kept(loads: Project) -> None:
    write_manifest(
        loads,
        "single_stream",
        "offline",
        "multi_stream: {samples_per_query: 4}",
        "server: {rate: 500 /s, latency: 60 s}",
        options="seconds: 0.002",
        more="  instances: 2\n  batcher: {max_batch: 4, max_delay: 1 ms}",
    )
    result = loads.run("-k", "performance", "--mlms-loadgen", "--mlms-duration=2")
    result.assert_outcomes(passed=4)
    for item in loads.items():
        assert item["doubts"].startswith("LoadGen: VALID"), item["scenario"]
        name = "query_latency" if item["scenario"] == "multi_stream-4" else "query_rate"
        assert item["estimates"][name]["value"] > 0
        folder = loads.results
        for name in ("summary.txt", "detail.txt", "accuracy.json"):
            path = item["artifacts"][f"mlperf_log_{name}"]
            assert (folder / path).stat().st_size
    server = next(item for item in loads.items() if item["scenario"].startswith("server"))
    assert server["verdict"] == "PASSED"


@needs_loadgen
@pytest.mark.slow
def test_a_server_that_loadgen_finds_invalid_fails(loads: Project) -> None:
    write_manifest(loads, "server: {rate: 500 /s, latency: 1 ms}", options="seconds: 0.01")
    result = loads.run("-k", "performance", "--mlms-loadgen")
    result.assert_outcomes(failed=1)
    (item,) = loads.items()
    assert item["doubts"].startswith("LoadGen: INVALID")


@needs_loadgen
@pytest.mark.slow
def test_thresholds_are_judged_by_what_loadgen_measured(loads: Project) -> None:
    limits = "thresholds:\n  latency_p90: {{max: {}}}\n  peak_memory: {{max: 1 GiB}}"
    for latency, verdict in (("1 µs", "FAILED"), ("60 s", "PASSED")):
        write_manifest(
            loads, "single_stream", options="seconds: 0.002", more=limits.format(latency)
        )
        loads.run("-k", "performance", "--mlms-loadgen")
        (item,) = loads.items()
        verdicts = {limit["quantity"]: limit["verdict"] for limit in item["limits"]}
        assert verdicts == {"latency_p90": verdict, "peak_memory": "INCONCLUSIVE"}


@needs_loadgen
def test_a_scenario_that_loadgen_lacks_is_an_error(loads: Project) -> None:
    write_manifest(loads, "peak: {latency: 1 s}")
    result = loads.run("-k", "performance", "--mlms-loadgen")
    assert "LoadGen has no scenario 'peak'" in result.stdout.str()
