"""Latencies of a trace.

The latency of a level comes from the run in which it was the deepest level, so that it does not
contain the overhead of profiling deeper levels. Means are trimmed: the longest and the shortest
fifth of the calls are left out, as in XSP (https://arxiv.org/abs/1908.06869), for all layers the
same calls. On a busy machine the runs of two levels differ by more than their overhead, so that a
share is always of the run in which it was measured.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.trace.grouping import trimmed_mean
from pytest_mlms.measure.trace.layers import layers_of_run
from pytest_mlms.measure.trace.spans import Trace

Array = NDArray[Any]


class LayerTime(NamedTuple):
    """Microseconds of a call in the run of the layers, and of its layers together.

    Both are means over the same calls: all but the longest and the shortest fifth.
    """

    layers_us: float
    call_us: float

    @property
    def share(self) -> float:
        """Share of the call that its layers take."""
        return self.layers_us / self.call_us


def model_latency(trace: Trace, level: str = "model") -> float | None:
    """Return the microseconds of one call in the run of ``level``.

    None without that run, or without a call in it.
    """
    run = trace.run_at(level)
    spans = trace.spans
    calls = spans.find("model", run)
    in_request = spans.request[calls] >= 0
    calls = calls[in_request]
    if not len(calls):
        return None
    return trimmed_mean(spans.duration[calls]) / 1000


def layer_time(trace: Trace) -> LayerTime | None:
    """Return the time of a call in the run of the layers; None without layers in calls."""
    run = trace.run_at("layer")
    layers = layers_of_run(trace, run)
    if not len(layers.spans):
        return None
    calls = trace.spans.find("model", run)
    typical = calls[np.isin(trace.spans.request[calls], layers.typical)]
    if not len(typical):
        return None
    call_us = float(trace.spans.duration[typical].mean()) / 1000
    layers_us = math.fsum(layers.microseconds(trace.spans.duration).values())
    return LayerTime(layers_us, call_us)
