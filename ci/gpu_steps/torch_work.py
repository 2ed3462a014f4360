"""Work for a GPU in this process: a chain of products."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Work", "event_us", "products", "warmed"]

Work = Callable[[], Any]
"""A call that enqueues work on the current stream."""


def products(device: str, size: int = 4096, layers: int = 8, dtype: str = "float32") -> Work:
    """Return a chain of matrix products, each with a ReLU after it."""
    import torch

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    kind = getattr(torch, dtype)
    weights = (torch.randn(size, size, device=device) / size**0.5).to(kind)
    values = torch.randn(size, size, device=device).to(kind)

    def call() -> Any:
        y = values
        for _ in range(layers):
            y = torch.relu(y @ weights)
        return y

    return call


def warmed(work: Work, seconds: float = 1.0) -> Work:
    """Return work after it was done for some time, so that the clock is that of load."""
    import torch

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        work()
        torch.cuda.synchronize()
    return work


def event_us(work: Work, count: int = 10) -> float:
    """Return the median time of a call between CUDA's events, in microseconds."""
    import torch

    found: list[float] = []
    for _ in range(count):
        before = torch.cuda.Event(enable_timing=True)
        after = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        before.record()
        work()
        after.record()
        after.synchronize()
        found.append(1e3 * before.elapsed_time(after))
    return statistics.median(found)
