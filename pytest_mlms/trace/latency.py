"""Latencies of a trace.

The latency of a level comes from the run in which it was the deepest level, so that it does not
contain the overhead of profiling deeper levels. Means are trimmed: the largest and the smallest
fifth are left out, as in XSP (https://arxiv.org/abs/1908.06869). On a busy machine the runs of two
levels differ by more than their overhead, so that a share is always of the run in which it was
measured.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace.grouping import trimmed_mean
from pytest_mlms.trace.layers import layers_of_run
from pytest_mlms.trace.spans import Spans, Trace

__all__ = ["LayerTime", "layer_time", "model_latency"]

Array = NDArray[Any]


class LayerTime(NamedTuple):
    """Microseconds of a call in the run of the layers: in its layers, and outside of them.

    Each layer, and the time outside of them, is a trimmed mean over calls. Disturbances hit
    different layers in different calls, so that the trimmed mean of whole calls would be longer
    than the layers that it has.
    """

    layers_us: float
    outside_us: float

    @property
    def call_us(self) -> float:
        """Microseconds of the whole call."""
        return self.layers_us + self.outside_us

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
    spans = trace.spans
    in_layers = _by_request(spans, layers.spans)
    calls = _by_request(spans, spans.find("model", run))
    observed = (in_layers > 0) & (calls > 0)
    if not observed.any():
        return None
    outside = (calls - in_layers)[observed]
    layers_us = math.fsum(layers.microseconds(spans.duration).values())
    return LayerTime(layers_us, trimmed_mean(outside) / 1000)


def _by_request(spans: Spans, chosen: Array) -> Array:
    """Return the nanoseconds that the chosen spans take in each request."""
    chosen = chosen[spans.request[chosen] >= 0]
    requests = int(spans.request.max()) + 1
    return np.bincount(spans.request[chosen], spans.duration[chosen], requests)
