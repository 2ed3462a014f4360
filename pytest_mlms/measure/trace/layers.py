"""The layers of a run: their spans, and keys that identify each layer in all requests."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace.grouping import grouped, middle
from pytest_mlms.measure.trace.intervals import Intervals, enclosing
from pytest_mlms.measure.trace.spans import Spans, Trace

Array = NDArray[Any]


class LayerKey(NamedTuple):
    """Identity of a layer within a model.

    ``occurrence`` counts the layers of the same name and type before it in a request.
    """

    name: str
    type: str
    occurrence: int


class RunLayers(NamedTuple):
    """The outermost layers of a run, by request and time: key, span and request of each.

    ``typical`` are the requests that count for times: all but the longest and the shortest fifth.
    """

    keys: list[LayerKey]
    spans: Array
    requests: Array
    typical: Array

    def by_key(self) -> dict[LayerKey, Array]:
        """Return the spans of each layer, in the order in which layers run."""
        return grouped(self.keys, self.spans)

    def microseconds(self, nanoseconds: Array) -> dict[LayerKey, float]:
        """Return the mean over typical requests of each layer of a column over all spans, in us.

        The same requests count for all layers, so that the layers' times add up to that of these
        requests' layers.
        """
        counted = np.where(np.isin(self.requests, self.typical), nanoseconds[self.spans], 0)
        means = {}
        for key, values in grouped(self.keys, counted).items():
            means[key] = float(values.sum()) / len(self.typical) / 1000
        return means


def layers_of_run(trace: Trace, run: int | None) -> RunLayers:
    """Return the layers of a run that are inside of no other layer; none without a run."""
    spans = trace.spans
    layers = spans.find("layer", run)
    in_request = spans.request[layers] >= 0
    layers = layers[in_request]
    nested = _is_nested(spans, layers)
    layers = layers[~nested]
    start = spans.start[layers]
    request = spans.request[layers]
    layers = layers[np.lexsort((start, request))]
    requests = spans.request[layers]
    return RunLayers(_keys_of(trace, layers), layers, requests, _typical(trace, run, requests))


def _typical(trace: Trace, run: int | None, requests: Array) -> Array:
    """Return the requests with layers whose calls are neither among the longest nor the shortest.

    The order is that of the calls' durations, or without calls that of the requests.
    """
    spans = trace.spans
    calls = spans.find("model", run)
    calls = calls[np.isin(spans.request[calls], requests)]
    if not len(calls):
        return middle(np.unique(requests))
    by_duration = np.argsort(spans.duration[calls], kind="stable")
    return middle(spans.request[calls][by_duration])


def _keys_of(trace: Trace, layers: Array) -> list[LayerKey]:
    spans = trace.spans
    requests = spans.request[layers].tolist()
    names = trace.texts(spans.name[layers])
    types = trace.texts(spans.type[layers])
    seen: Counter[tuple[int, str, str]] = Counter()
    keys = []
    for identity in zip(requests, names, types, strict=True):
        _, name, kind = identity
        occurrence = seen[identity]
        seen[identity] += 1
        keys.append(LayerKey(name, kind, occurrence))
    return keys


def _is_nested(spans: Spans, layers: Array) -> Array:
    """Return a mask of the layers of one run that lie inside of another layer on their track.

    A block that holds layers counts once, as the block.
    """
    nested = np.zeros(len(layers), bool)
    tracks = spans.track[layers]
    for track in np.unique(tracks).tolist():
        places = np.flatnonzero(tracks == track)
        start, end = spans.start[layers[places]], spans.end[layers[places]]
        order = np.lexsort((-end, start))
        nested[places[order]] = enclosing(Intervals(start[order], end[order])).index >= 0
    return nested
