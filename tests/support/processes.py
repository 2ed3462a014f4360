"""Results of fresh processes for tests of performance, without a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from pytest_mlms.measure.agent.predictor import ScenarioRun
from pytest_mlms.measure.evaluate.performance_plan import PerformancePlan
from pytest_mlms.measure.evaluate.process_result import ProcessRecord, ProcessResult


def scenario_run(
    latencies: Sequence[float], gap: float = 0.0, bind_seconds: float = 0.0
) -> ScenarioRun:
    """Return a run with these latencies, and ``gap`` seconds between the calls."""
    durations = np.asarray(latencies, float)
    ends_with_gaps = np.cumsum(durations + gap)
    start = np.concatenate([[0.0], ends_with_gaps[:-1]])
    times = {
        "start": start,
        "end": start + durations,
        "wait": np.zeros(2),
        "at": np.array([0, len(start)]),
    }
    return ScenarioRun(times, {"logits": np.array([[1.0, 2.0]])}, "digest", 100, bind_seconds)


def result_of(run: ScenarioRun, **changes: Any) -> ProcessResult:
    """Return the result of a process with some fields of its record changed."""
    fields = {
        "start_seconds": 0.1,
        "load_seconds": 0.2,
        "first_seconds": 0.3,
        "loop_seconds": 1.0,
        "warmup_calls": 8,
        "steady": True,
        "peak_bytes": 1000,
        "peak_is_since_load": True,
        "calls": len(run.latencies),
        "output_sha256": "digest",
        "waited": None,
        "load_waited": 0.0,
        "first_waited": 0.0,
        "in_full": True,
    }
    record = ProcessRecord(**{**fields, **changes})
    return ProcessResult(record, run, float(run.latencies.mean()))


def process(latency: float, calls: int = 1000) -> ProcessResult:
    """Return the result of a process whose calls all take ``latency`` seconds."""
    return result_of(scenario_run([latency] * calls))


def plan(**changes: Any) -> PerformancePlan:
    """Return a plan with some fields changed."""
    fields = {
        "scenario": "single_stream",
        "batch_size": 4,
        "processes": 3,
        "duration": 1.0,
        "budget": 60.0,
        "limits": (),
    }
    return PerformancePlan(**{**fields, **changes})


class FakePredictor:
    """A predictor whose calls take the seconds that ``call_seconds`` returns for their number.

    Binding takes ``bind_seconds``. It has no clock but that of its calls. A run has at most ``capacity`` calls.
    """

    device = "cpu"
    start_seconds = 0.1
    load_seconds = 0.2
    load_waited = 0.0
    bind_seconds = 0.0
    rss_before = 0
    peak_is_since_load = True
    import_seconds = 0.05
    unmeasured: ClassVar[dict[str, str]] = {}

    def __init__(self, call_seconds: Callable[[int], float], capacity: int = 10_000) -> None:
        self._call_seconds = call_seconds
        self._capacity = capacity
        self._done = 0

    def run(
        self,
        scenario: str,
        batches: Sequence[Any] = (),
        *,
        seconds: float,
        least: int,
        longest: float,
        idle: float = 0.0,
        order: Sequence[int] = (),
    ) -> ScenarioRun:
        """Make calls until ``seconds`` and ``least`` are reached."""
        latencies: list[float] = []
        while len(latencies) < self._capacity:
            latencies.append(self._call_seconds(self._done))
            self._done += 1
            if sum(latencies) >= seconds and len(latencies) >= least:
                break
        return scenario_run(latencies, bind_seconds=self.bind_seconds if batches else 0.0)
