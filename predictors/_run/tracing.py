"""Traced calls: some without any probe, some with probes, and some without again, in one process.

The calls without probes show the overhead of tracing. They come before and after, so that a
machine that slows down meanwhile does not look like a slow probe. Which span belongs to which layer
or call is decided on the pytest side.
"""

import bisect
import contextlib
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import steps
from .probe import CounterReadings, ProbeStatus, Span
from .probes import ProbeSet
from .protocol import Profile

_BY_LAYER = "layer+hardware"  # the level of a run that reads counters between layers
_PROFILED = ("layer", "library", "kernel", _BY_LAYER)  # levels that need the layer profiler
_BY_CUPTI = ("library", "kernel")  # levels whose probes read CUPTI on a GPU
# Seconds of calls that are not counted, after the process did something else: caches are cold.
_COLD = 0.002

LAUNCHES_ONLY = (
    "the layer profiler times the launches of a GPU's kernels, and not the kernels; "
    "--mlms-trace=layer waits for each launch"
)
Profiles = Callable[[int], List[Profile]]
"""A function that profiles so many calls."""


class TracedModel(NamedTuple):
    """A model to trace: its call, its layer profiler (None: it has none), and its device.

    ``takes_cupti``: the profiler reads CUPTI, which has room for one reader in a process.
    """

    call: Callable[[], Any]
    profiles: Optional[Profiles]
    device: str
    takes_cupti: bool = False


class TraceRequest(NamedTuple):
    """A level to trace, and the names of probes with the options of each.

    ``observed`` calls run with the probes. ``plain`` calls without probes come before, and as many
    after.
    """

    level: str
    probes: List[str]
    observed: int
    plain: int
    options: Dict[str, Dict[str, Any]]


class TracedCalls(NamedTuple):
    """The nanoseconds of each call without probes, and what was seen of the calls with them."""

    plain: List[int]
    spans: List[Span]
    series: List[CounterReadings]
    probes: List[ProbeStatus]


class _LayerProfiler(NamedTuple):
    """The framework's own profiler, None where it cannot be used, and the status that tells why."""

    profiles: Optional[Profiles]
    statuses: List[ProbeStatus]


def trace(model: TracedModel, request: TraceRequest) -> TracedCalls:
    """Run the calls of a request, with its probes and the framework's profiler."""
    _warm(model.call)
    plain = _time_calls(model.call, request.plain)
    with ProbeSet(request.probes, model.device, request.level, request.options) as probes:
        profiler = _layer_profiler(model, request.level)
        with contextlib.ExitStack() as stack:
            observers = [probe.moment for probe in probes.entered]
            if request.level == _BY_LAYER:
                observers = [probes.between]
            for observer in observers:
                stack.enter_context(steps.observed_by(observer))
            spans = _observed_calls(model.call, profiler.profiles, probes, request.observed)
    for probe in probes.entered:
        spans = _with_numbers(spans, probe.moments) + probe.spans
    _warm(model.call)
    plain += _time_calls(model.call, request.plain)
    statuses = probes.refused + profiler.statuses + probes.statuses()
    return TracedCalls(plain, spans, probes.series(), statuses)


def _layer_profiler(model, level):
    """Return the layer profiler where the level needs it, after a first use.

    The first call may build what the profiler needs, and shows whether layers run one by one.
    """
    if level not in _PROFILED:
        return _LayerProfiler(None, [])
    if model.profiles is None:
        return _no_profiler(
            "this predictor has no layers(), as its framework has no layer profiler"
        )
    if model.takes_cupti and level in _BY_CUPTI:
        return _no_profiler("the layer profiler takes CUPTI; layers are those of the level layer")
    moments = []
    try:
        with steps.observed_by(lambda: moments.append(True)):
            (profile,) = model.profiles(1)
    except Exception as error:
        return _no_profiler("%s: %s" % (type(error).__name__, error))
    if profile.of_launches and level not in _BY_CUPTI:
        return _no_profiler(LAUNCHES_ONLY)
    return _LayerProfiler(model.profiles, [ProbeStatus("layers", True, stepwise=bool(moments))])


def _no_profiler(reason):
    return _LayerProfiler(None, [ProbeStatus("layers", False, reason)])


def _observed_calls(call, profiles, probes, count):
    """Return the spans of calls and layers; probes read before the first call and after each.

    Calls that are profiled run in one go, so probes read before and after them all.
    """
    spans = []
    probes.between()
    if profiles is not None:
        for request, profile in enumerate(profiles(count)):
            spans += _profiled(profile, request)
        probes.between()
        return spans
    for request in range(count):
        start = time.perf_counter()
        call()
        spans.append(_call_span(start, time.perf_counter(), request))
        probes.between()
    return spans


def _profiled(profile, request):
    """Return a call and its layers as spans."""
    spans = [_call_span(profile.start, profile.end, request)]
    for layer in profile.layers:
        spans.append(_layer_span(layer, request))
    return spans


def _call_span(start, end, request):
    return Span(
        "model", "predict", "", "", _ns(start), _ns(end), _serving_thread(), request=request
    )


def _layer_span(layer, request):
    return Span(
        "layer",
        layer.name,
        layer.type,
        " x ".join(map(str, layer.shape)) if layer.shape else "",
        _ns(layer.start),
        _ns(layer.end),
        _serving_thread(),
        bytes=-1 if layer.bytes is None else int(layer.bytes),
        request=request,
    )


def _serving_thread():
    """Return the number of the main thread, which serves requests: the process's own."""
    return os.getpid()


def _with_numbers(spans, moments):
    """Return the spans, each layer with the number of the moment just before it.

    A layer with another moment inside of it has none.
    """
    times = [at for at, _ in moments]
    found = []
    for span in spans:
        place = bisect.bisect_right(times, span.start) - 1
        alone = bisect.bisect_left(times, span.end) == place + 1
        if span.level == "layer" and place >= 0 and alone:
            found.append(span._replace(external=moments[place][1]))
        else:
            found.append(span)
    return found


def _warm(call):
    end = time.perf_counter() + _COLD
    while True:
        call()
        if time.perf_counter() >= end:
            return


def _time_calls(call, count):
    """Return the nanoseconds of each of ``count`` calls."""
    durations = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        durations.append(_ns(time.perf_counter() - start))
    return durations


def _ns(seconds):
    return int(seconds * 1e9)
