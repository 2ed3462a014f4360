"""Tables of a trace, and their CSV files: one row per layer, and one row per kernel of a layer.

Rows are over all requests: keys identify each layer in them.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.files import write_atomically
from pytest_mlms.measure.trace.correlate import (
    Intervals,
    Parents,
    ancestors,
    enclosing,
    grouped,
    middle,
    sums_by,
    trimmed_mean,
)
from pytest_mlms.measure.trace.spans import Spans, Trace


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

    The order is by the calls' durations, or without calls by the requests.
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


def write_table(path: Path, rows: Sequence[Any], kind: type) -> None:
    """Write dataclasses of type ``kind`` as CSV, atomically.

    The header has the names of the fields. None is an empty cell; floats have six digits.
    """
    header = [field.name for field in dataclasses.fields(kind)]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(map(_cells, rows))
    write_atomically(path, text.getvalue())


def _cells(row: Any) -> list[object]:
    return [_cell(value) for value in dataclasses.astuple(row)]


def _cell(value: object) -> object:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value


@dataclass(frozen=True)
class LayerRow:
    """A layer over all requests.

    ``latency_us`` is the trimmed mean in microseconds, and ``share`` is its part of the sum of all
    layers. ``bytes`` is what the framework reports. ``kernel_us`` is the time in microseconds that
    the kernels and copies of the layer ran on the device, or None without a kernel run.
    """

    index: int
    name: str
    type: str
    shape: str
    calls: int
    latency_us: float
    share: float
    bytes: int | None
    kernel_us: float | None


@dataclass(frozen=True)
class KernelRow:
    """A kernel or a copy of a layer.

    ``calls`` is how often a request starts it. ``latency_us`` is the time of one call in
    microseconds, and ``total_us`` adds up all calls of a request.
    """

    name: str
    type: str
    layer: str
    calls: float
    latency_us: float
    total_us: float
    bytes: int | None


class _KernelKey(NamedTuple):
    """Identity of a kernel within a model, as indices of strings."""

    name: int
    type: int
    layer: int


def layer_rows(trace: Trace, parents: Parents) -> list[LayerRow]:
    """Return a row for each layer, in the order in which they run; empty without a layer run."""
    layers = layers_of_run(trace, trace.run_at("layer"))
    kernel_us = _kernel_microseconds(trace, parents)
    latencies = layers.microseconds(trace.spans.duration)
    total = sum(latencies.values())
    rows = []
    for index, (key, same) in enumerate(layers.by_key().items()):
        first = int(same[0])
        row = LayerRow(
            index=index,
            name=key.name,
            type=key.type,
            shape=trace.strings[trace.spans.shape[first]],
            calls=len(same),
            latency_us=latencies[key],
            share=_share(latencies[key], total),
            bytes=_known_bytes(trace.spans, first),
            kernel_us=_of_layer(kernel_us, key),
        )
        rows.append(row)
    return rows


def kernel_rows(trace: Trace, parents: Parents) -> list[KernelRow]:
    """Return a row for each kernel of each layer, in descending order of time per request.

    Kernels that were launched outside of any request, such as by a warm-up call, do not count.
    """
    run = trace.run_at("kernel")
    if run is None:
        return []
    kernels = _counted_kernels(trace, parents, run)
    spans = trace.spans
    layer = ancestors(spans, parents.index, "layer")[kernels]
    layer_names = spans.name[layer]
    layer_names[layer < 0] = 0
    names = spans.name[kernels].tolist()
    types = spans.type[kernels].tolist()
    keys = list(map(_KernelKey, names, types, layer_names.tolist()))
    requests = _request_count(trace.spans, run)
    rows = []
    for key, same in grouped(keys, kernels).items():
        latency_us = trimmed_mean(trace.spans.duration[same]) / 1000
        calls = len(same) / requests
        row = KernelRow(
            name=trace.strings[key.name],
            type=trace.strings[key.type],
            layer=trace.strings[key.layer],
            calls=calls,
            latency_us=latency_us,
            total_us=latency_us * calls,
            bytes=_median_bytes(trace.spans.bytes[same]),
        )
        rows.append(row)
    return sorted(rows, key=lambda row: row.total_us, reverse=True)


def _kernel_microseconds(trace: Trace, parents: Parents) -> dict[LayerKey, float] | None:
    """Return the microseconds that each layer's kernels run in a request.

    None without a run, and where no kernel's layer is known.
    """
    run = trace.run_at("kernel")
    if run is None:
        return None
    spans = trace.spans
    kernels = spans.find("kernel", run)
    layer = ancestors(spans, parents.index, "layer")[kernels]
    if len(kernels) and (layer < 0).all():
        return None
    sums = sums_by(layer, spans.duration[kernels], len(spans))
    return layers_of_run(trace, run).microseconds(sums)


def _share(latency_us: float, total_us: float) -> float:
    if not total_us:
        return 0.0
    return latency_us / total_us


def _of_layer(kernel_us: Mapping[LayerKey, float] | None, key: LayerKey) -> float | None:
    if kernel_us is None:
        return None
    return kernel_us.get(key, 0.0)


def _known_bytes(spans: Spans, index: int) -> int | None:
    size = int(spans.bytes[index])
    if size < 0:
        return None
    return size


def _median_bytes(sizes: Array) -> int | None:
    if (sizes < 0).any():
        return None
    return int(np.median(sizes))


def _counted_kernels(trace: Trace, parents: Parents, run: int) -> Array:
    spans = trace.spans
    kernels = spans.find("kernel", run)
    launch = ancestors(spans, parents.index, "library")[kernels]
    in_request = spans.request[kernels] >= 0
    return kernels[in_request | (launch < 0)]


def _request_count(spans: Spans, run: int) -> int:
    """Return how many requests a run has, at least 1."""
    numbers = spans.request[spans.in_run(run)]
    requests = np.unique(numbers[numbers >= 0])
    return max(1, len(requests))
