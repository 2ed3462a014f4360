"""The layers of a run: their spans, and keys that identify each layer in all requests."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace.grouping import grouped, trimmed_mean
from pytest_mlms.trace.spans import Spans, Trace

__all__ = ["LayerKey", "RunLayers", "layers_of_run"]

Array = NDArray[Any]


class LayerKey(NamedTuple):
    """Identity of a layer within a model.

    ``occurrence`` counts the layers of the same name and type before it in a request.
    """

    name: str
    type: str
    occurrence: int


class RunLayers(NamedTuple):
    """The outermost layers of a run, by request and time: the key and the span of each."""

    keys: list[LayerKey]
    spans: Array

    def by_key(self) -> dict[LayerKey, Array]:
        """Return the spans of each layer, in the order in which layers run."""
        return grouped(self.keys, self.spans)

    def microseconds(self, nanoseconds: Array) -> dict[LayerKey, float]:
        """Return the trimmed mean of each layer of a column over all spans, in microseconds."""
        means = {}
        for key, same in self.by_key().items():
            means[key] = trimmed_mean(nanoseconds[same]) / 1000
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
    return RunLayers(_keys_of(trace, layers), layers)


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
    start = spans.start[layers]
    end = spans.end[layers]
    track = spans.track[layers]
    nested = np.zeros(len(layers), bool)
    current_track = -1
    latest_end = -1
    for place in np.lexsort((-end, start, track)).tolist():
        if track[place] != current_track:
            current_track = track[place]
            latest_end = -1
        nested[place] = end[place] <= latest_end
        latest_end = max(latest_end, int(end[place]))
    return nested
