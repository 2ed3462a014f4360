"""The status of a probe as it is sent and stored."""

from __future__ import annotations

from mlms_predictors._run.probe import ProbeStatus


def test_a_status_has_the_fields_of_the_results() -> None:
    status = ProbeStatus("perf", True, missing={"cycles": "no such counter"}, fault="it died")
    assert status.as_fields() == {
        "probe": "perf",
        "available": True,
        "reason": "",
        "missing": {"cycles": "no such counter"},
        "fault": "it died",
    }


def test_only_a_layer_profiler_says_whether_it_runs_stepwise() -> None:
    fields = ProbeStatus("layers", True, stepwise=False).as_fields()
    assert fields["stepwise"] is False
    assert fields["missing"] == {}
    assert "stepwise" not in ProbeStatus("io", False, "no /proc").as_fields()
