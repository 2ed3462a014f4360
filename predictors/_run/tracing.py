"""Calls under watch: some without any probe, some with, some without again, in one process.

What watching costs is told by the calls without, before and after, so that a machine that slows
down in between doesn't look like a slow probe. Knows nothing of whose spans are whose; only times
and numbers leave here.
"""

import bisect
import contextlib
import os
import time
from typing import Any, Dict, List, NamedTuple

from . import steps
from .probes import Span, enter_probe, word

_COLUMNS = (
    "level",
    "name",
    "type",
    "shape",
    "start",
    "end",
    "track",
    "bytes",
    "correlation",
    "request",
    "external",
)
_BY_LAYER = "layer+hardware"  # the level of a run that counts between layers
# seconds of calls that aren't counted, after the process did something else: caches are cold
_COLD = 0.002


class WatchedModel(NamedTuple):
    """What is watched: a call without arguments, what returns the Profiles of so many calls (or
    None), the device.
    """

    call: Any
    profiles: Any
    device: str


class Watched(NamedTuple):
    """Nanoseconds of each call without probes, the spans and counters of those with, and a word on
    each probe.
    """

    plain: List[int]
    spans: List[Span]
    series: List[Any]
    probes: List[Dict[str, Any]]


def watch(subject, level, names, count, plain, options):
    """Run ``plain`` calls, ``count`` with the probes of these names and the framework's profiler,
    ``plain`` more.
    """
    told = []
    _warm(subject.call)
    before = _plain(subject.call, plain)
    with contextlib.ExitStack() as stack:
        probes = [
            probe
            for probe in (
                enter_probe(stack, name, subject.device, level, options.get(name), told)
                for name in names
            )
            if probe
        ]
        profiler = _profiler(subject, level, told)
        for probe in probes:
            stack.enter_context(
                steps.watched_by(probe.between if level == _BY_LAYER else probe.moment)
            )
        spans = _calls(subject.call, profiler, probes, count)
    for probe in probes:
        spans = _numbered(spans, probe.moments) + probe.spans
        told.append(word(probe.name, True, "", probe.missing, probe.fault))
    series = [series for probe in probes for series in probe.series]
    _warm(subject.call)
    return Watched(before + _plain(subject.call, plain), spans, series, told)


def _profiler(subject, level, told):
    """Return the framework's own layer profiler where the level needs it, None where there is none."""
    if level not in ("layer", "library", "kernel", _BY_LAYER):
        return None
    if subject.profiles is None:
        told.append(
            word(
                "layers",
                False,
                "this predictor has no layers(), as its framework has no layer profiler",
            )
        )
        return None
    moments = []
    try:
        with steps.watched_by(lambda: moments.append(True)):
            subject.profiles(1)  # the first may build what the profiler needs
    except Exception as error:
        told.append(word("layers", False, "%s: %s" % (type(error).__name__, error)))
        return None
    told.append(dict(word("layers", True, ""), stepwise=bool(moments)))
    return subject.profiles


def _calls(call, profiler, probes, count):
    for probe in probes:
        probe.between()
    if profiler is not None:
        spans = [
            span
            for request, profile in enumerate(profiler(count))
            for span in _profiled(profile, request)
        ]
        for probe in probes:
            probe.between()
        return spans
    spans = []
    for request in range(count):
        start = time.perf_counter()
        call()
        spans.append(_predict(start, time.perf_counter(), request))
        for probe in probes:
            probe.between()
    return spans


def _predict(start, end, request):
    thread = os.getpid()  # the main thread, which serves requests: its number is the process's
    return Span("model", "predict", "", "", _ns(start), _ns(end), thread, None, -1, 0, request)


def _profiled(profile, request):
    whole = _predict(profile.start, profile.end, request)
    return [whole] + [_layer(layer, whole.thread, request) for layer in profile.layers]


def _numbered(spans, moments):
    """Return the spans, each layer with the number of the moment before it, if there is no other
    inside of it.
    """
    times = [time for time, _ in moments]
    found = []
    for span in spans:
        place = bisect.bisect_right(times, span.start) - 1
        alone = (
            place >= 0
            and span.level == "layer"
            and bisect.bisect_left(times, span.end) == place + 1
        )
        found.append(span._replace(external=moments[place][1]) if alone else span)
    return found


def _layer(layer, thread, request):
    shape = " x ".join(map(str, layer.shape)) if layer.shape else ""
    size = -1 if layer.bytes is None else int(layer.bytes)
    return Span(
        "layer",
        layer.name,
        layer.type,
        shape,
        _ns(layer.start),
        _ns(layer.end),
        thread,
        None,
        size,
        0,
        request,
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


def as_reply(watched):
    """Return facts and arrays.

    Spans as columns of whole numbers, texts and tracks as indices into lists.
    """
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
            span.external,
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
        "series": [[series.name, series.unit, series.rising] for series in watched.series],
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
