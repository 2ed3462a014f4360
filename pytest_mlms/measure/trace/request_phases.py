"""Requests as a user's program makes them, traced on the pytest side.

Spans of the phases and of the steps of the pipeline come from requests without counters. Counters
are read in further requests, so that no phase pays for the readings.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from mlms_predictors._run.probes import ProbeSet
from mlms_predictors._run.readings import CounterReadings

from pytest_mlms.core.serialization import from_plain
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.pipeline.observers import observe, step
from pytest_mlms.measure.trace import BY_PHASE, LEVELS, PHASES
from pytest_mlms.measure.trace.builder import TraceBuilder
from pytest_mlms.measure.trace.runs import ProbeStatus, TraceRun
from pytest_mlms.measure.trace.spans import CounterSeries, Track

_CALLS = 5
_PROBES = ("perf", "io")
_PRE_PROCESS, _PREDICT, _POST_PROCESS = PHASES


class PreparedRequest(NamedTuple):
    """Input arrays of a request by name, and the function that processes its output arrays."""

    arrays: Mapping[str, Array]
    postprocess: Callable[[Mapping[str, Array]], object]


MakeRequest = Callable[[Predictor], PreparedRequest]


def run_phases(builder: TraceBuilder, predictor: Predictor, make_request: MakeRequest) -> None:
    """Make requests; add a span for each phase and each step of the pipeline."""
    recorder = _PhaseRecorder(builder, "application", ProbeSet([], "cpu", "application"))
    recorder.make_requests(predictor, make_request)


def count_phases(builder: TraceBuilder, predictor: Predictor, make_request: MakeRequest) -> None:
    """Make requests; read the counters of this process between their phases.

    Adds no run where no counter can be read.
    """
    with ProbeSet(_PROBES, "cpu", "hardware") as probes:
        if not probes.entered:
            return
        recorder = _PhaseRecorder(builder, BY_PHASE, probes)
        recorder.make_requests(predictor, make_request)
    recorder.add_counters()


class _PhaseRecorder:
    """Adds the requests of one run to a trace, as spans and, with probes, as counters."""

    def __init__(self, builder: TraceBuilder, level: str, probes: ProbeSet) -> None:
        process = os.getpid()
        self._builder = builder
        self._probes = probes
        self._run = builder.add_run(TraceRun(level, calls=_CALLS, process=process))
        track = Track(self._run, process, threading.get_native_id(), "pytest", "thread")
        self._track = builder.track(track)
        self._request = -1

    def make_requests(self, predictor: Predictor, make_request: MakeRequest) -> None:
        for number in range(_CALLS):
            self._request = number
            self._read_counters()
            with observe(self._add_span), step("request"):
                with self._phase(_PRE_PROCESS):
                    request = make_request(predictor)
                with self._phase(_PREDICT):
                    outputs = predictor.predict(request.arrays)
                with self._phase(_POST_PROCESS):
                    request.postprocess(outputs)

    def add_counters(self) -> None:
        """Add the readings of the probes, which have been left, and the status of all probes."""
        for series in self._probes.series():
            self._add_series(series)
        statuses = []
        for status in self._probes.refused + self._probes.statuses():
            statuses.append(from_plain(ProbeStatus, status.as_fields()))
        run = self._builder.runs[self._run]
        self._builder.runs[self._run] = replace(run, probes=tuple(statuses))

    def _add_series(self, series: CounterReadings) -> None:
        key = CounterSeries(series.name, series.unit, self._run, series.rising)
        times = np.array(series.times, "i8")
        values = np.array(series.values, "f8")
        self._builder.count(key, times, values)

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        with step(name):
            yield
        self._read_counters()

    def _read_counters(self) -> None:
        self._probes.between()

    def _add_span(self, name: str, start: int, end: int) -> None:
        self._builder.add(
            level=LEVELS.index("application"),
            name=self._builder.text(name),
            start=[start],
            end=[end],
            track=self._track,
            run=self._run,
            request=self._request,
        )
