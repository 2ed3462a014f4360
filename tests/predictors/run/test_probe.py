"""Probes, and the statuses that they report."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from mlms_predictors._run.probe import Probe, ProbeStatus, ProbeUnavailable

from tests.support.probes import values


class Counting(Probe):
    """A probe of one counter that counts its own readings."""

    name = "counting"
    rising = ("readings",)

    def __init__(self, most: int = 1 << 30) -> None:
        super().__init__("cpu")
        self.units = {"readings": "count"}
        self.most = most
        self.count = 0
        self.stopped = 0
        self.read_often = threading.Event()

    def read(self) -> dict[str, int]:
        if self.count == self.most:
            raise OSError("the sensor is gone")
        self.count += 1
        if self.count == 5:
            self.read_often.set()
        return {"readings": self.count}

    def stop(self) -> None:
        self.stopped += 1


def test_a_reading_is_taken_between_calls_with_its_time() -> None:
    with Counting() as probe:
        probe.between()
        probe.between()
    (series,) = probe.series
    assert (series.name, series.unit, series.rising) == ("readings", "count", True)
    assert series.values == [1, 2]
    assert series.times == sorted(series.times)
    assert probe.spans == []
    assert probe.fault == ""


def test_a_probe_with_a_period_is_also_read_by_a_thread() -> None:
    probe = Counting()
    probe.period = 0.001
    with probe:
        assert probe.read_often.wait(300)
    count = probe.count
    probe.between()
    assert probe.count == count + 1, "the thread has ended"


def test_a_probe_that_fails_midway_keeps_its_readings_and_reports_the_fault() -> None:
    with Counting(most=2) as probe:
        for _ in range(5):
            probe.between()
    assert values(probe, "readings") == [1, 2]
    assert probe.fault == "OSError: the sensor is gone"


def test_a_failure_to_stop_is_reported_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("no flush")

    probe = Counting()
    monkeypatch.setattr(probe, "stop", fail)
    with probe:
        probe.between()
    assert probe.fault == "RuntimeError: no flush"


@pytest.mark.parametrize("stops", [True, False])
def test_a_probe_that_can_not_start_is_stopped_and_gives_its_reason(
    monkeypatch: pytest.MonkeyPatch, stops: bool
) -> None:
    probe = Counting()
    calls: list[str] = []

    def refuse() -> None:
        raise ProbeUnavailable("the reason")

    def stop() -> None:
        calls.append("stop")
        if not stops:
            raise RuntimeError("nothing to stop")

    monkeypatch.setattr(probe, "start", refuse)
    monkeypatch.setattr(probe, "stop", stop)
    with pytest.raises(ProbeUnavailable, match="the reason"), probe:
        pass
    assert calls == ["stop"]


def test_a_probe_has_the_device_level_and_options_that_it_is_made_with() -> None:
    options: dict[str, Any] = {"functions": ["libc*:getpid"]}
    probe = Probe("cuda:1", "library", options)
    assert (probe.device, probe.level, probe.options) == ("cuda:1", "library", options)
    assert Probe("cpu").options == {}


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
