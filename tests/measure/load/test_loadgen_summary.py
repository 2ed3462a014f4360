from __future__ import annotations

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.load.loadgen import read_summary, server_settings, settings_of

SUMMARY = """================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 98.52
Result is : INVALID
  Performance constraints satisfied : NO
  Min duration satisfied : Yes
  Early Stopping Result:
 * Run unsuccessful.
99.00 percentile latency (ns)   : 5190371
================================================
Test Parameters Used
================================================
samples_per_query : 1
"""


def test_a_summary_has_the_result_its_figures_and_what_was_not_met() -> None:
    found = read_summary(SUMMARY)
    assert not found.valid
    assert found.values == {
        "Completed samples per second": 98.52,
        "99.00 percentile latency (ns)": 5190371.0,
    }
    assert found.unmet == ("Performance constraints satisfied",)
    assert found.text == "LoadGen: INVALID; not met: Performance constraints satisfied"


@pytest.mark.parametrize(
    "text", ["", "Result is : MAYBE\n", "Test Parameters Used\nResult is : VALID"]
)
def test_a_summary_without_a_result_is_an_error(text: str) -> None:
    with pytest.raises(MlmsError, match="LoadGen wrote no result"):
        read_summary(text)


def test_a_valid_run_takes_600_seconds_and_the_queries_of_the_scenario() -> None:
    short = settings_of("server", 7, 1.5, valid=False, **server_settings(100, 0.015, 0.99))
    assert short.scenario == "Server"
    assert short.settings["min_duration_ms"] == 1500
    assert short.settings["schedule_rng_seed"] == 7
    assert short.settings["server_target_latency_ns"] == 15_000_000
    assert short.settings["min_query_count"] == 662
    valid = settings_of("offline", 7, 1.5, valid=True)
    assert valid.settings["min_duration_ms"] == 600_000
    assert valid.settings["min_query_count"] == 24_576


def test_a_scenario_that_loadgen_lacks_is_an_error() -> None:
    with pytest.raises(MlmsError, match="LoadGen has no scenario 'replay'"):
        settings_of("replay", 0, 1, valid=False)
