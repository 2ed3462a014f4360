"""Construction of a trace: spans and counters of agents' replies, and of requests made by pytest.

Requests are made as a user's program makes them. Spans of their phases and of the steps of the
pipeline come from requests without counters. Counters are read in further requests, so that no
phase pays for the readings.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from mlms_predictors._run.probe import CounterReadings
from mlms_predictors._run.probes import ProbeSet

from pytest_mlms.core.errors import AgentError
from pytest_mlms.core.serialization import from_plain
from pytest_mlms.measure.agent.channel import shortened
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array, Reply
from pytest_mlms.measure.pipeline.observers import observe, step
from pytest_mlms.measure.trace import BY_PHASE, LEVELS, PHASES
from pytest_mlms.measure.trace.records import ProbeStatus, TraceMetadata, TraceRun
from pytest_mlms.measure.trace.spans import Counters, CounterSeries, Spans, Trace, Track

Value = TypeVar("Value")


class TraceBuilder:
    """Collects spans, counters and runs; stores each string, track and series once.

    ``metadata`` and the elements of ``runs`` may be replaced until the trace is built.
    """

    def __init__(self, metadata: TraceMetadata | None = None) -> None:
        self.metadata = metadata or TraceMetadata()
        self.runs: list[TraceRun] = []
        self._strings: dict[str, int] = {"": 0}
        self._tracks: dict[Track, int] = {}
        self._series: dict[CounterSeries, int] = {}
        self._spans: list[Spans] = []
        self._counters: list[Counters] = []

    def add_run(self, run: TraceRun) -> int:
        """Add a run; return its index."""
        self.runs.append(run)
        return len(self.runs) - 1

    def text(self, text: str | None) -> int:
        """Return the index of a string."""
        return _number_of(text or "", self._strings)

    def texts(self, texts: Iterable[str | None]) -> Array:
        """Return the index of each string."""
        indices = map(self.text, texts)
        return np.fromiter(indices, "i4")

    def track(self, track: Track) -> int:
        """Return the index of a track."""
        return _number_of(track, self._tracks)

    def add(self, **columns: Any) -> None:
        """Add spans with the columns of ``Spans.of``."""
        spans = Spans.of(**columns)
        self._spans.append(spans)

    def count(self, series: CounterSeries, time: Array, value: Array) -> None:
        """Add readings of a counter: times in nanoseconds, and values in the unit of the series."""
        number = _number_of(series, self._series)
        column = np.full(len(time), number, "i4")
        readings = Counters(column, time, value)
        self._counters.append(readings)

    def build(self) -> Trace:
        """Return the trace of all that was added so far."""
        return Trace(
            spans=Spans.join(self._spans),
            counters=Counters.join(self._counters),
            strings=tuple(self._strings),
            tracks=tuple(self._tracks),
            series=tuple(self._series),
            runs=tuple(self.runs),
            metadata=self.metadata,
        )


def _number_of(value: Value, numbers: dict[Value, int]) -> int:
    """Return the number of a value; a new value gets the next one."""
    return numbers.setdefault(value, len(numbers))


_MODEL = LEVELS.index("model")
_TEXTS = ("name", "type", "shape")
_PREFIX = "span_"


def add_reply(builder: TraceBuilder, reply: Reply, run: int, first_request: int) -> Array:
    """Add the spans and counters of a reply to a run; number its requests from ``first_request``.

    The first reply of a run also adds the span of loading the model. Return the nanoseconds of each
    traced call.
    """
    columns = _columns(builder, reply, run)
    request = columns["request"]
    columns["request"] = np.where(request < 0, -1, request + first_request)
    builder.add(run=run, **columns)
    if not first_request:
        process = reply.facts["process"]
        start, end = reply.facts["load"]
        builder.add(
            level=_MODEL,
            name=builder.text("load"),
            start=[start],
            end=[end],
            track=builder.track(_thread_track(run, process, process)),
            run=run,
        )
    for index, (name, unit, rising) in enumerate(reply.facts["series"]):
        series = CounterSeries(name, unit, run, rising)
        times = reply.arrays[f"time_{index}"]
        values = reply.arrays[f"value_{index}"]
        builder.count(series, times, values)
    calls = columns["level"] == _MODEL
    durations = columns["end"] - columns["start"]
    return np.asarray(durations[calls])


def probe_statuses(reply: Reply) -> list[ProbeStatus]:
    """Return the status of each probe of a reply. Raises AgentError where one is none."""
    from pydantic import ValidationError

    statuses = []
    for status in reply.facts["probes"]:
        try:
            statuses.append(from_plain(ProbeStatus, status))
        except ValidationError as error:
            found = shortened(repr(status))
            raise AgentError(f"the agent sent {found} as the status of a probe") from error
    return statuses


def _columns(builder: TraceBuilder, reply: Reply, run: int) -> dict[str, Array]:
    """Return the columns of the spans, with the indices of the trace instead of the reply's."""
    facts = reply.facts
    columns = {}
    for key, array in reply.arrays.items():
        if key.startswith(_PREFIX):
            name = key.removeprefix(_PREFIX)
            columns[name] = array
    strings = builder.texts(facts["strings"])
    for name in _TEXTS:
        columns[name] = strings[columns[name]]
    levels = [_level_index(level) for level in facts["levels"]]
    level_indices = np.array(levels, "u1")
    columns["level"] = level_indices[columns["level"]]
    process = facts["process"]
    indices = []
    for thread, stream in facts["tracks"]:
        if stream is None:
            track = _thread_track(run, process, thread)
        else:
            track = Track(run, process, thread, stream, "stream")
        indices.append(builder.track(track))
    tracks = np.array(indices, "i4")
    columns["track"] = tracks[columns["track"]]
    return columns


def _level_index(level: str) -> int:
    if level not in LEVELS:
        raise AgentError(f"the agent traced {shortened(repr(level))}, which is no level")
    return LEVELS.index(level)


def _thread_track(run: int, process: int, thread: int) -> Track:
    name = f"thread {thread}"
    if thread == process:
        name = "main"
    return Track(run, process, thread, name, "thread")


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
