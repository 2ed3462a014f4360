"""Tables of a trace: one row per layer, and one row per kernel of a layer, over all requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace.correlate import Parents, ancestors, sums_by
from pytest_mlms.measure.trace.grouping import grouped, trimmed_mean
from pytest_mlms.measure.trace.layers import LayerKey, layers_of_run
from pytest_mlms.measure.trace.spans import Spans, Trace

Array = NDArray[Any]


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
    microseconds, and ``total_us`` is that of all calls of a request.
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
    keys = _kernel_keys(trace.spans, parents, kernels)
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


def _kernel_keys(spans: Spans, parents: Parents, kernels: Array) -> list[_KernelKey]:
    layer = ancestors(spans, parents.index, "layer")[kernels]
    layer_names = spans.name[layer]
    layer_names[layer < 0] = 0
    names = spans.name[kernels].tolist()
    types = spans.type[kernels].tolist()
    return list(map(_KernelKey, names, types, layer_names.tolist()))


def _request_count(spans: Spans, run: int) -> int:
    """Return how many requests a run has, at least 1."""
    numbers = spans.request[spans.in_run(run)]
    requests = np.unique(numbers[numbers >= 0])
    return max(1, len(requests))
