"""Calls under watch: some without any probe, some with, some without again, in one process.

What watching costs is told by the calls without, before and after, so that a machine that slows down in between
doesn't look like a slow probe. Knows nothing of whose spans are whose; only times and numbers leave here.
"""

import contextlib
import os
import time
from typing import Any, Dict, List, NamedTuple

from . import steps
from .probes import Span, Unavailable, open_probe

_COLUMNS = ("level", "name", "type", "shape", "start", "end", "track", "bytes", "correlation", "request")
_BY_LAYER = "layer+hardware"  # the level of a run that counts between layers
_COLD = 0.002  # seconds of calls that aren't counted, after the process did something else: caches are cold


class Subject(NamedTuple):
    """What is watched: a call without arguments, its Profile by the framework (or None), and the device."""

    call: Any
    layers: Any
    device: str


class Watched(NamedTuple):
    """Nanoseconds of each call without probes, the spans and counters of those with, and a word on each probe."""

    plain: List[int]
    spans: List[Span]
    series: List[Any]
    probes: List[Dict[str, Any]]


def watch(subject, level, names, count, plain, options):
    """Run ``plain`` calls, ``count`` with the probes of these names and the framework's profiler, ``plain`` more."""
    told = []
    _warm(subject.call)
    before = _plain(subject.call, plain)
    with contextlib.ExitStack() as stack:
        probes = [probe for probe in (_enter(stack, name, subject, level, options, told) for name in names) if probe]
        profiler = _profiler(subject, level, told)
        if level == _BY_LAYER:
            for probe in probes:
                stack.enter_context(steps.watched_by(probe.between))
        spans = _calls(subject.call, profiler, probes, count)
    for probe in probes:
        spans += probe.spans
        told.append(_word(probe.name, True, "", probe.missing, probe.fault))
    series = [series for probe in probes for series in probe.series]
    _warm(subject.call)
    return Watched(before + _plain(subject.call, plain), spans, series, told)


def _enter(stack, name, subject, level, options, told):
    try:
        probe = open_probe(name, subject.device, level, options.get(name))
        return stack.enter_context(probe)
    except Unavailable as reason:
        told.append(_word(name, False, str(reason)))
    except Exception as error:  # a fault of the probe's must not cost the calls
        told.append(_word(name, False, "%s: %s" % (type(error).__name__, error)))
    return None


def _profiler(subject, level, told):
    """Return the framework's own layer profiler where the level needs it, None where there is none."""
    if level not in ("layer", "library", "kernel", _BY_LAYER):
        return None
    if subject.layers is None:
        told.append(_word("layers", False, "this predictor has no layers(), as its framework has no layer profiler"))
        return None
    moments = []
    try:
        with steps.watched_by(lambda: moments.append(True)):
            subject.layers()  # the first may build what the profiler needs
    except Exception as error:
        told.append(_word("layers", False, "%s: %s" % (type(error).__name__, error)))
        return None
    told.append(dict(_word("layers", True, ""), stepwise=bool(moments)))
    return subject.layers


def _calls(call, profiler, probes, count):
    spans = []
    for probe in probes:
        probe.between()
    for request in range(count):
        spans += _one(call, profiler, request)
        for probe in probes:
            probe.between()
    return spans


def _one(call, profiler, request):
    thread = os.getpid()  # the main thread, which serves requests: its number is the process's
    if profiler is None:
        start = time.perf_counter()
        call()
        return [Span("model", "predict", "", "", _ns(start), _ns(time.perf_counter()), thread, None, -1, 0, request)]
    profile = profiler()
    whole = Span("model", "predict", "", "", _ns(profile.start), _ns(profile.end), thread, None, -1, 0, request)
    return [whole] + [_layer(layer, thread, request) for layer in profile.layers]


def _layer(layer, thread, request):
    shape = " x ".join(map(str, layer.shape)) if layer.shape else ""
    size = -1 if layer.bytes is None else int(layer.bytes)
    return Span(
        "layer", layer.name, layer.type, shape, _ns(layer.start), _ns(layer.end), thread, None, size, 0, request
    )


def _warm(call):
    end = time.perf_counter() + _COLD
    while True:
        call()
        if time.perf_counter() >= end:
            return


def _plain(call, count):
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        taken.append(_ns(time.perf_counter() - start))
    return taken


def _ns(seconds):
    return int(seconds * 1e9)


def _word(name, available, reason, missing=None, fault=""):
    return {"probe": name, "available": available, "reason": reason, "missing": missing or {}, "fault": fault}


def as_reply(watched):
    """Return facts and arrays: spans as columns of whole numbers, texts and tracks as indices into lists."""
    import numpy

    strings, tracks, levels = _Index(), _Index(), _Index()
    strings.of("")
    rows = [
        (
            levels.of(span.level),
            strings.of(span.name),
            strings.of(span.type),
            strings.of(span.shape),
            span.start,
            max(span.start, span.end),
            tracks.of((span.thread, span.stream)),
            span.bytes,
            span.correlation,
            span.request,
        )
        for span in watched.spans
    ]
    table = numpy.ascontiguousarray(numpy.array(rows, "i8").reshape(-1, len(_COLUMNS)).T)
    arrays = [("span_" + name, table[index]) for index, name in enumerate(_COLUMNS)]
    arrays.append(("plain", numpy.array(watched.plain, "i8")))
    for index, series in enumerate(watched.series):
        arrays.append(("time_%d" % index, numpy.array(series.times, "i8")))
        arrays.append(("value_%d" % index, numpy.array(series.values, "f8")))
    facts = {
        "strings": strings.values,
        "tracks": tracks.values,
        "levels": levels.values,
        "series": [[series.name, series.unit] for series in watched.series],
        "probes": watched.probes,
        "process": os.getpid(),
    }
    return facts, arrays


class _Index:
    """Gives each value a number."""

    def __init__(self):
        self.values = []  # type: List[Any]
        self._places = {}  # type: Dict[Any, int]

    def of(self, value):
        if value not in self._places:
            self._places[value] = len(self.values)
            self.values.append(value)
        return self._places[value]
