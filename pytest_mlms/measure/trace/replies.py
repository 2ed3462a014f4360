"""Conversion of an agent's replies to ``trace`` requests into spans and counters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pytest_mlms.core.errors import AgentError
from pytest_mlms.core.serialization import from_plain
from pytest_mlms.measure.agent.process import Array, Reply
from pytest_mlms.measure.agent.replies import shortened
from pytest_mlms.measure.trace import LEVELS
from pytest_mlms.measure.trace.builder import TraceBuilder
from pytest_mlms.measure.trace.runs import ProbeStatus
from pytest_mlms.measure.trace.spans import CounterSeries, Track

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
        _add_load(builder, reply.facts, run)
    _add_counters(builder, reply, run)
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
    tracks = _track_indices(builder, facts, run)
    columns["track"] = tracks[columns["track"]]
    return columns


def _level_index(level: str) -> int:
    if level not in LEVELS:
        raise AgentError(f"the agent traced {shortened(repr(level))}, which is no level")
    return LEVELS.index(level)


def _track_indices(builder: TraceBuilder, facts: Mapping[str, Any], run: int) -> Array:
    process = facts["process"]
    indices = []
    for thread, stream in facts["tracks"]:
        if stream is None:
            track = _thread_track(run, process, thread)
        else:
            track = Track(run, process, thread, stream, "stream")
        indices.append(builder.track(track))
    return np.array(indices, "i4")


def _thread_track(run: int, process: int, thread: int) -> Track:
    name = f"thread {thread}"
    if thread == process:
        name = "main"
    return Track(run, process, thread, name, "thread")


def _add_load(builder: TraceBuilder, facts: Mapping[str, Any], run: int) -> None:
    process = facts["process"]
    start, end = facts["load"]
    builder.add(
        level=_MODEL,
        name=builder.text("load"),
        start=[start],
        end=[end],
        track=builder.track(_thread_track(run, process, process)),
        run=run,
    )


def _add_counters(builder: TraceBuilder, reply: Reply, run: int) -> None:
    for index, (name, unit, rising) in enumerate(reply.facts["series"]):
        series = CounterSeries(name, unit, run, rising)
        times = reply.arrays[f"time_{index}"]
        values = reply.arrays[f"value_{index}"]
        builder.count(series, times, values)
