"""Latencies of a trace.

The latency of a level comes from the run in which it was the deepest level, so that it does not
contain the overhead of profiling deeper levels. Means are trimmed: the largest and the smallest
fifth are left out, as in XSP (https://arxiv.org/abs/1908.06869).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.trace.grouping import trimmed_mean
from pytest_mlms.trace.layers import layers_of_run
from pytest_mlms.trace.spans import Trace

__all__ = ["layer_coverage", "model_latency"]

Array = NDArray[Any]


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


def layer_coverage(trace: Trace) -> float | None:
    """Return the share of the model's time that its layers take, in the run of the layers.

    None without that run.
    """
    whole = model_latency(trace, "layer")
    layers = layers_of_run(trace, trace.run_at("layer"))
    if not whole or not len(layers.spans):
        return None
    requests = trace.spans.request[layers.spans]
    durations = trace.spans.duration[layers.spans]
    of_request = np.bincount(requests, durations)
    return trimmed_mean(of_request) / 1000 / whole
