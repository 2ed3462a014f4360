"""Tables of a trace: a row a layer, and a row a kernel of a layer, over all traced requests. Pure
functions.

The latency of a level is taken from the run in which it was the deepest level that was on, so that
what profiling the levels below costs isn't in it. Means are trimmed: the largest and the smallest
fifth are left out, as XSP does.
"""

from __future__ import annotations

import csv
import dataclasses
import os
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.correlate import Parents, ancestors, find_parents
from pytest_mlms.trace.spans import Trace

__all__ = [
    "KernelRow",
    "LayerKey",
    "LayerRow",
    "coverage",
    "grouped",
    "kernel_rows",
    "layer_rows",
    "layers_of_run",
    "model_latency",
    "parents_of",
    "trimmed_mean",
    "write_table",
]

Array = NDArray[Any]
_TRIM = 0.2  # of the values, at each end


@dataclass(frozen=True)
class LayerRow:
    """A layer over all requests: microseconds; ``share`` of the sum of all layers; ``bytes`` as the
    framework says.

    ``kernel_us`` is the time that its kernels and copies ran on the device, from the kernel run;
    None without one.
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
    """A kernel (or copy) of a layer.

    How often a request starts it, microseconds of one and of all in a request.
    """

    name: str
    type: str
    layer: str
    calls: float
    latency_us: float
    total_us: float
    bytes: int | None


def trimmed_mean(values: Array) -> float:
    """Return the mean without the largest and the smallest fifth; nan of nothing."""
    cut = int(_TRIM * len(values))
    middle = np.sort(values)[cut : len(values) - cut]
    return float(middle.mean()) if len(middle) else float("nan")


def parents_of(trace: Trace) -> Parents:
    """Return each span's parent."""
    return find_parents(trace.spans, trace.devices)


def layer_rows(trace: Trace, parents: Parents) -> list[LayerRow]:
    """Return a row for each layer, in the order in which they run; empty without a layer run."""
    keys, spans = layers_of_run(trace, parents, trace.run_at("layer"))
    on_device = _kernel_time(trace, parents)
    latencies = {
        key: trimmed_mean(trace.spans.duration[mine]) / 1000
        for key, mine in grouped(keys, spans).items()
    }
    total = sum(latencies.values()) or float("nan")
    rows = []
    for index, (key, mine) in enumerate(grouped(keys, spans).items()):
        size, shape = int(trace.spans.bytes[mine[0]]), trace.strings[trace.spans.shape[mine[0]]]
        row = LayerRow(
            index=index,
            name=key[0],
            type=key[1],
            shape=shape,
            calls=len(mine),
            latency_us=latencies[key],
            share=latencies[key] / total,
            bytes=None if size < 0 else size,
            kernel_us=None if on_device is None else on_device.get(key, 0.0),
        )
        rows.append(row)
    return rows


def kernel_rows(trace: Trace, parents: Parents) -> list[KernelRow]:
    """Return a row for each kernel of each layer, the one that takes longest first.

    Kernels that were launched outside of any request, by a call that warms up, don't count.
    """
    run = trace.run_at("kernel")
    if run is None:
        return []
    spans, strings = trace.spans, trace.strings
    launched = ancestors(spans, parents.index, "library") >= 0
    mine = np.flatnonzero(
        spans.at("kernel") & (spans.run == run) & ~(launched & (spans.request < 0))
    )
    owner = ancestors(spans, parents.index, "layer")
    requests = _requests(trace, run)
    rows = []
    columns = (
        spans.name[mine],
        spans.type[mine],
        np.where(owner[mine] < 0, 0, spans.name[owner[mine]]),
    )
    for key, group in grouped(
        list(zip(*(column.tolist() for column in columns), strict=True)), mine
    ).items():
        name, kind, layer = (strings[index] for index in key)
        one, calls = trimmed_mean(spans.duration[group]) / 1000, len(group) / requests
        sizes = spans.bytes[group]
        size = int(np.median(sizes)) if (sizes >= 0).all() else None
        rows.append(KernelRow(name, kind, layer, calls, one, one * calls, size))
    return sorted(rows, key=lambda row: -row.total_us)


def model_latency(trace: Trace, level: str = "model") -> float | None:
    """Return the microseconds of one prediction, untraced by anything deeper than ``level``.

    None without that run.
    """
    run = trace.run_at(level)
    if run is None:
        return None
    spans = trace.spans
    mine = spans.at("model") & (spans.run == run) & (spans.request >= 0)
    return trimmed_mean(spans.duration[mine]) / 1000 if mine.any() else None


def coverage(trace: Trace, parents: Parents) -> float | None:
    """Return the share of the model's time that its layers take, in the layer run.

    None without one.
    """
    run = trace.run_at("layer")
    whole = model_latency(trace, "layer")
    if run is None or not whole:
        return None
    _, layers = layers_of_run(trace, parents, run)
    of_request = np.bincount(trace.spans.request[layers], trace.spans.duration[layers])
    return trimmed_mean(of_request) / 1000 / whole if len(of_request) else None


def write_table(path: Path, rows: Sequence[Any], kind: type) -> None:
    """Write dataclasses of a kind as CSV, whole or not at all; None is an empty cell."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(field.name for field in dataclasses.fields(kind))
            table.writerows(map(_cells, rows))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _cells(row: Any) -> list[object]:
    return [
        f"{value:.6g}" if isinstance(value, float) else value for value in dataclasses.astuple(row)
    ]


def _requests(trace: Trace, run: int) -> int:
    mine = trace.spans.run == run
    return max(1, len(np.unique(trace.spans.request[mine & (trace.spans.request >= 0)])))


LayerKey = tuple[str, str, int]  # name, type, how many of that name came before it in the request


def layers_of_run(trace: Trace, parents: Parents, run: int | None) -> tuple[list[LayerKey], Array]:
    """Return the run's layers that are inside of no other, by request and time, and what tells them
    apart.
    """
    spans = trace.spans
    if run is None:
        return [], np.zeros(0, "i8")
    mine = np.flatnonzero(spans.at("layer") & (spans.run == run) & (spans.request >= 0))
    mine = mine[~_inside_another(trace, mine)]
    mine = mine[np.lexsort((spans.start[mine], spans.request[mine]))]
    seen: Counter[tuple[int, int, int]] = Counter()
    keys = []
    for request, name, kind in zip(
        *(c[mine].tolist() for c in (spans.request, spans.name, spans.type)), strict=True
    ):
        keys.append((trace.strings[name], trace.strings[kind], seen[request, name, kind]))
        seen[request, name, kind] += 1
    return keys, mine


def _inside_another(trace: Trace, layers: Array) -> Array:
    """Return which layers lie inside of another on their track.

    Blocks that hold layers count once, as the block.
    """
    spans = trace.spans
    order = np.lexsort(
        (-spans.end[layers], spans.start[layers], spans.track[layers], spans.run[layers])
    )
    inside = np.zeros(len(layers), bool)
    group = spans.run[layers].astype("i8") << 32 | spans.track[layers]
    reached, of = -1, None
    for place in order.tolist():
        if group[place] != of:
            reached, of = -1, group[place]
        inside[place] = spans.end[layers[place]] <= reached
        reached = max(reached, int(spans.end[layers[place]]))
    return inside


def grouped(keys: Iterable[Any], values: Array) -> dict[Any, Array]:
    """Return the values of each key, keys in the order of their first."""
    groups: dict[Hashable, list[int]] = {}
    for key, value in zip(keys, values.tolist(), strict=True):
        groups.setdefault(key, []).append(value)
    return {key: np.array(group) for key, group in groups.items()}


def _kernel_time(trace: Trace, parents: Parents) -> dict[LayerKey, float] | None:
    """Return the microseconds on the device of each layer's kernels in one request."""
    run = trace.run_at("kernel")
    if run is None:
        return None
    keys, layers = layers_of_run(trace, parents, run)
    spans = trace.spans
    kernels = np.flatnonzero((spans.level == LEVELS.index("kernel")) & (spans.run == run))
    owner = ancestors(spans, parents.index, "layer")[kernels]
    sums = np.bincount(owner[owner >= 0], spans.duration[kernels[owner >= 0]], len(spans))
    return {key: trimmed_mean(sums[mine]) / 1000 for key, mine in grouped(keys, layers).items()}
