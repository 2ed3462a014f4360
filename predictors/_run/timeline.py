"""Times on one clock: layers that come with durations only, and times of the wall clock."""

import time
from typing import Iterable, Optional, Tuple

from .protocol import Layer, Profile

# Nanoseconds that the wall clock may drift against the monotonic one while a profiler uses it.
LARGEST_STEP = 1000000

TimedLayer = Tuple[str, str, float, Optional[int], Optional[Tuple[int, ...]]]
"""The name, type, seconds, bytes and shape of a layer."""


def in_turn(start: float, end: float, layers: Iterable[TimedLayer]) -> Profile:
    """Return the Profile of layers that ran one after another, in their order.

    The first one begins with the call. What the framework does between layers is the rest at the
    end.
    """
    placed = []
    now = start
    for name, kind, seconds, size, shape in layers:
        after = now + seconds
        placed.append(Layer(name, kind, now, after, size, shape))
        now = after
    return Profile(start, max(end, now), placed)


def wall_offset() -> int:
    """Return the wall clock minus the monotonic one, in nanoseconds.

    It is the closest of a few pairs of readings.
    """
    pairs = [_read_pair() for _ in range(5)]
    return min(pairs)[1]


def _read_pair():
    """Return how many seconds the readings took, and the difference of the clocks in ns."""
    before = time.perf_counter()
    wall = time.time()
    after = time.perf_counter()
    middle = (before + after) / 2
    return after - before, int(wall * 1e9) - int(middle * 1e9)
