"""Times on one clock: layers that come with durations only, and times of the wall clock."""

import time
from typing import Iterable, NamedTuple, Optional, Tuple

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
        layer = Layer(name, kind, now, now + seconds, size, shape)
        placed.append(layer)
        now = layer.end
    return Profile(start, max(end, now), placed)


def in_queue(layer: Layer, on_device: Optional[float], free: float) -> Layer:
    """Return a layer that the host started as a GPU's queue ran it.

    It has its times on the host, and begins when the queue is ``free``. It takes the seconds of its
    kernels, and one without kernels (None) what of the host's time the queue doesn't hide. So
    layers don't overlap, as do their launches and kernels, and none lies inside of another.
    """
    start = max(layer.start, free)
    end = max(start, layer.end) if on_device is None else start + on_device
    return layer._replace(start=start, end=end)


def wall_offset() -> int:
    """Return the wall clock minus the monotonic one, in nanoseconds.

    It is the closest of a few pairs of readings.
    """
    pairs = [_read_clocks() for _ in range(5)]
    closest = min(pairs)
    return closest.offset


class _Pair(NamedTuple):
    """Readings of two clocks: the seconds that they took, and their difference in ns."""

    took: float
    offset: int


def _read_clocks():
    before = time.perf_counter()
    wall = time.time()
    after = time.perf_counter()
    middle = (before + after) / 2
    offset = int(wall * 1e9) - int(middle * 1e9)
    return _Pair(after - before, offset)
