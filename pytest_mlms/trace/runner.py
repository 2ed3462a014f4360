"""The procedure of a trace: each level in a run of its own, in a fresh agent, so that none pays for
another's probes.

A level's overhead is told over calls without a probe in the same process, just before and after.
What a probe can't see is told with its reason, and costs the level, never the item.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.agent.process import Array, Reply
from pytest_mlms.errors import AgentError
from pytest_mlms.structure.cost import describe
from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.correlate import ancestors, find_parents
from pytest_mlms.trace.counters import BY_LAYER
from pytest_mlms.trace.request_phases import Request, count_phases, run_phases
from pytest_mlms.trace.spans import Builder, CounterSeries, Trace, Track
from pytest_mlms.trace.tables import parents_of, trimmed_mean

__all__ = ["Inspection", "inspect", "with_requests"]

PROBES: dict[str, tuple[str, ...]] = {
    "model": (),
    "layer": (),
    "library": ("cupti", "kineto", "bpftrace"),
    "kernel": ("cupti", "kineto"),
    "hardware": ("perf", "io", "memory", "rapl", "hwmon", "nvml", "gpm"),
    BY_LAYER: ("perf",),
}
"""Level of a run -> the probes that see it; the layers are the framework's own to tell."""

_LEAST, _MOST = 10, 200  # traced calls of a level
_MOST_SENSED = 2000  # of a reply at the level hardware
_CHUNK_SECONDS = 0.25  # of calls between two replies: what is lost where an agent dies
_SERIALISED = {"CUDA_LAUNCH_BLOCKING": "1"}


@dataclass(frozen=True)
class Inspection:
    """What a trace runs: the levels, seconds of traced calls at each, and seconds for all of it, at
    most.
    """

    levels: tuple[str, ...]
    duration: float
    budget: float
    functions: tuple[str, ...] = ()

    @property
    def runs(self) -> list[str]:
        """The levels that have a run in an agent; the model's own is the measure of the others."""
        runs = ["model", *(level for level in PROBES if level in self.levels and level != "model")]
        return [*runs, BY_LAYER] if {"layer", "hardware"} <= set(self.levels) else runs


def inspect(
    plan: Inspection,
    open_predictor: Callable[..., AbstractContextManager[Predictor]],
    request: Request,
    batch_for: Callable[[Predictor], Mapping[str, Array]],
    keep: Callable[[Trace], None],
    about: Mapping[str, Any],
) -> Trace:
    """Return the trace; ``keep`` gets what there is so far after each run, for an item may not live
    to its end.

    ``open_predictor`` takes more environment variables for the agent. Raises AgentError where not
    even calls without any probe can be had.
    """
    builder = Builder({**about, "levels": list(plan.levels)})
    seconds = min(plan.duration, plan.budget / len(plan.runs) / 4)
    for level in plan.runs:
        if level == BY_LAYER and not _stepwise(builder):
            continue
        try:
            _run(
                builder,
                plan,
                level,
                seconds,
                open_predictor,
                batch_for,
                request if level == "model" else None,
            )
        except AgentError as error:
            builder.runs[-1]["fault"] = str(error)
            if level == "model":
                raise
        finally:
            keep(with_requests(builder.build()))
        if level == "kernel" and _in_doubt(builder):
            _serialise(builder, plan, seconds, open_predictor, batch_for)
            keep(with_requests(builder.build()))
    return with_requests(builder.build())


def _run(
    builder: Builder,
    plan: Inspection,
    level: str,
    seconds: float,
    open_predictor: Callable[..., AbstractContextManager[Predictor]],
    batch_for: Callable[[Predictor], Mapping[str, Array]],
    request: Request | None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run one level in a fresh agent, in replies of a quarter of a second, until there is enough."""
    run: dict[str, Any] = {
        "level": level,
        "calls": 0,
        "plain_us": None,
        "traced_us": None,
        "overhead": None,
    }
    run.update(probes=[], fault="", serialised=bool(env))
    builder.runs.append(run)
    number, parts = len(builder.runs) - 1, list[tuple[Array, Array]]()
    with open_predictor(env or {}) as predictor:
        batch = batch_for(predictor)
        warm = predictor.run("single_stream", [batch], seconds=0.05, least=3, longest=plan.budget)
        chunk = _chunk(level, max(float(np.median(warm.latencies)), 1e-6), seconds)
        began = time.monotonic()
        while _wants_more(
            run["calls"], time.monotonic() - began, seconds, plan.budget / len(plan.runs)
        ):
            options = {"bpftrace": {"functions": list(plan.functions)}}
            reply = predictor.trace(level, _probes(plan, level), chunk, batch, options, plan.budget)
            parts.append((reply.arrays["plain"], _add(builder, number, reply, run["calls"])))
            run["calls"] += chunk
            run["process"], run["probes"] = (
                reply.facts["process"],
                _merged(run["probes"], reply.facts["probes"]),
            )
            if not _watched(level, run):
                run["void"] = "no probe could watch"
                break
            _tell_overhead(run, parts)
        if request:
            run_phases(builder, predictor, request)
            if "hardware" in plan.levels:
                count_phases(builder, predictor, request)
            _peaks(builder, predictor)
            _count_work(builder, predictor, batch)


def _chunk(level: str, latency: float, seconds: float) -> int:
    """Return how many calls one reply is of.

    Many short ones where sensors look on, which take their time.
    """
    most = np.clip(seconds / latency, _LEAST, _MOST_SENSED) if level == "hardware" else _LEAST
    return int(np.clip(_CHUNK_SECONDS / latency, 1, most))


def _wants_more(calls: int, spent: float, seconds: float, longest: float) -> bool:
    """Whether a level needs more.

    One call, ten while its share of the budget lasts, and its seconds of them.
    """
    if not calls:
        return True
    return spent < longest and (calls < _LEAST or (spent < seconds and calls < _MOST))


def _seers(level: str, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the words on what sees the level; the model's own run needs nothing."""
    names = ("layers", *PROBES[level]) if level in ("layer", BY_LAYER) else PROBES[level]
    return (
        [{"available": True}]
        if level == "model"
        else [word for word in run["probes"] if word["probe"] in names]
    )


def _watched(level: str, run: Mapping[str, Any]) -> bool:
    """Whether anything saw the level; counters by layer need the layers and the counters."""
    available = [word["available"] for word in _seers(level, run)]
    return all(available) if level == BY_LAYER else any(available)


def _stepwise(builder: Builder) -> bool:
    """Whether the predictor runs layers one by one, with moments between them in which counters can
    be read.
    """
    words = [word for run in builder.runs if run["level"] == "layer" for word in run["probes"]]
    return any(word.get("stepwise") for word in words)


def _probes(plan: Inspection, level: str) -> list[str]:
    return [name for name in PROBES[level] if name != "bpftrace" or plan.functions]


def _add(builder: Builder, run: int, reply: Reply, first: int) -> Array:
    """Add a reply's spans and counters, its requests counted from ``first``.

    Return the ns of its traced calls.
    """
    facts, arrays = reply
    process, strings = facts["process"], builder.texts(facts["strings"])
    tracks = np.array(
        [builder.track(_track(run, process, *track)) for track in facts["tracks"]], "i4"
    )
    levels = np.array([LEVELS.index(level) for level in facts["levels"]], "u1")
    columns = {
        name.removeprefix("span_"): array
        for name, array in arrays.items()
        if name.startswith("span_")
    }
    for name in ("name", "type", "shape"):
        columns[name] = strings[columns[name]]
    columns.update(level=levels[columns["level"]], track=tracks[columns["track"]])
    calls = columns["level"] == LEVELS.index("model")
    columns["request"] = np.where(columns["request"] >= 0, columns["request"] + first, -1)
    builder.add(run=run, **columns)
    if not first:
        _add_load(builder, run, process, facts["load"])
    for index, (name, unit, rising) in enumerate(facts["series"]):
        builder.count(
            CounterSeries(name, unit, run, rising),
            arrays[f"time_{index}"],
            arrays[f"value_{index}"],
        )
    return np.asarray(columns["end"][calls] - columns["start"][calls])


def _track(run: int, process: int, thread: int, stream: str | None) -> Track:
    if stream is not None:
        return Track(run, process, thread, stream, "stream")
    return Track(
        run, process, thread, "main" if thread == process else f"thread {thread}", "thread"
    )


def _add_load(builder: Builder, run: int, process: int, load: Sequence[int]) -> None:
    track = builder.track(_track(run, process, process, None))
    at = {"start": [load[0]], "end": [load[1]], "track": track, "run": run}
    builder.add(level=LEVELS.index("model"), name=builder.text("load"), **at)


def _merged(
    before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return a word on each probe over all replies: the last, with a fault of any."""
    faults = {word["probe"]: word["fault"] for word in before if word["fault"]}
    return [{**word, "fault": word["fault"] or faults.get(word["probe"], "")} for word in now]


def _tell_overhead(run: dict[str, Any], parts: Sequence[tuple[Array, Array]]) -> None:
    """Note the latency without and with probes: of trimmed means, replies taken together."""
    plain, traced = (trimmed_mean(np.concatenate(each)) / 1000 for each in zip(*parts, strict=True))
    run.update(plain_us=plain, traced_us=traced, overhead=traced / plain - 1)


def _peaks(builder: Builder, predictor: Predictor) -> None:
    """Note what the device can do at best, for rooflines.

    Or why that isn't known, which costs nothing else.
    """
    try:
        builder.about["peaks"] = predictor.peaks()
    except AgentError as error:
        builder.about["peaks_unavailable"] = str(error)


def _count_work(builder: Builder, predictor: Predictor, batch: Mapping[str, Array]) -> None:
    """Note each layer's operations and bytes by the framework itself.

    Where it can't, the ONNX file's stay.
    """
    try:
        structure = predictor.structure({name: array.shape for name, array in batch.items()})
        builder.about["static"] = [layer.work for layer in describe(structure).layers]
    except AgentError as error:
        builder.about["structure_unavailable"] = str(error)


def with_requests(trace: Trace) -> Trace:
    """Return the trace with the request of each call and kernel that only its cause tells."""
    spans = trace.spans
    owner = ancestors(spans, find_parents(spans, trace.devices).index, "model")
    told = (spans.request < 0) & (owner >= 0)
    spans.request[told] = spans.request[owner[told]]
    return trace


def _in_doubt(builder: Builder) -> bool:
    """Whether the parent of a library call or kernel of the last run could have been another as
    well.
    """
    trace = builder.build()
    return bool((parents_of(trace).ambiguous & (trace.spans.run == len(trace.runs) - 1)).any())


def _serialise(
    builder: Builder,
    plan: Inspection,
    seconds: float,
    open_predictor: Callable[..., AbstractContextManager[Predictor]],
    batch_for: Callable[[Predictor], Mapping[str, Array]],
) -> None:
    """Run the kernel level again with every launch waited for.

    Where that fails, the first run stands.
    """
    first = builder.runs[-1]
    try:
        _run(builder, plan, "kernel", seconds, open_predictor, batch_for, None, _SERIALISED)
        if not builder.runs[-1].get("void"):
            first["void"] = "repeated with every launch waited for, as parents were in doubt"
    except AgentError as error:
        builder.runs[-1].update(fault=str(error), void="it failed")
