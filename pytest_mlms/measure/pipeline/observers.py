"""Observer hooks for pipeline steps; no-ops unless an item is traced."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

Observer = Callable[[str, int, int], None]
"""Called at the end of each step with its name, start and end.

Times are in nanoseconds of ``time.perf_counter_ns``.
"""

_observers: list[Observer] = []


@contextlib.contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call ``observer`` for every step that ends inside of the block."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    """Mark the block as a step of the pipeline, or of what calls the pipeline."""
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
