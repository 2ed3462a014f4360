"""Time in which a GPU works during a call, apart from the call's own time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace.correlate import sums_by
from pytest_mlms.measure.trace.grouping import trimmed_mean
from pytest_mlms.measure.trace.spans import Spans, Trace

Array = NDArray[Any]


@dataclass(frozen=True)
class DeviceTime:
    """Microseconds of a call, as trimmed means over the calls in the run of the kernels.

    ``busy_us`` is the time in which any kernel or copy runs, on whichever stream; ``kernels_us``
    that of kernels, ``to_device_us`` and ``to_host_us`` those of copies from the host and back.
    Where kernels and copies overlap, these add up to more. ``launches`` are kernels and copies.
    """

    busy_us: float
    kernels_us: float
    to_device_us: float
    to_host_us: float
    launches: float


def device_time(trace: Trace) -> DeviceTime | None:
    """Return the time of a GPU in a call; None without a kernel or a copy in one."""
    spans = trace.spans
    run = trace.run_at("kernel")
    found = spans.find("kernel", run)
    found = found[spans.request[found] >= 0]
    if not len(found):
        return None
    calls = spans.find("model", run)
    requests = np.unique(spans.request[calls[spans.request[calls] >= 0]])
    is_kernel = np.char.endswith(trace.texts(spans.type[found]), "kernel")
    names = np.array(trace.texts(spans.name[found]))
    return DeviceTime(
        busy_us=_busy_us(spans, found, requests),
        kernels_us=_busy_us(spans, found[is_kernel], requests),
        to_device_us=_busy_us(spans, found[~is_kernel & _has(names, "HtoD")], requests),
        to_host_us=_busy_us(spans, found[~is_kernel & _has(names, "DtoH")], requests),
        launches=len(found) / len(requests),
    )


def _has(names: Array, direction: str) -> Array:
    return np.asarray(np.char.find(names, direction) >= 0)


def _busy_us(spans: Spans, chosen: Array, requests: Array) -> float:
    """Return the mean over requests of the time in which any of the chosen spans runs.

    A span counts from where all that began before it have ended; calls come one after another.
    """
    chosen = chosen[np.argsort(spans.start[chosen], kind="stable")]
    start, end = spans.start[chosen], spans.end[chosen]
    ended = np.maximum.accumulate(np.concatenate([start[:1], end]))[:-1]
    alone = np.maximum(end - np.maximum(start, ended), 0)
    sums = sums_by(spans.request[chosen], alone, int(requests.max()) + 1)
    return trimmed_mean(sums[requests]) / 1000
