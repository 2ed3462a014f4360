"""Who wants to know when the steps on this side ran.

Unless an item is traced nobody does, and it costs nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

__all__ = ["observe", "step"]

Observer = Callable[[str, int, int], None]
"""Told of each step as it ends: its name, start and end in nanoseconds of the monotonic clock."""

_observers: list[Observer] = []


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Have ``observer`` told of the steps that end while this is open."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Mark a step: of the pipeline, or of what calls it."""
    if not _observers:
        yield
        return
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        end = time.perf_counter_ns()
        for observer in tuple(_observers):
            observer(name, start, end)
