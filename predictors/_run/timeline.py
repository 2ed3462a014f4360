"""Where layers and kernels lie whose framework tells how long each took and not when, or when by
the wall clock.
"""

import time

from .protocol import Layer, Profile


def in_turn(start, end, layers):
    """Return the Profile of ``layers``, (name, type, seconds, bytes, shape) in the order they ran,
    one after another.

    The first begins with the call; what the framework does between layers is the rest at its end.
    """
    placed, now = [], start
    for name, kind, seconds, size, shape in layers:
        placed.append(Layer(name, kind, now, now + seconds, size, shape))
        now += seconds
    return Profile(start, max(end, now), placed)


LARGEST_STEP = (
    1000000  # ns that the wall clock may drift against the monotonic one while somebody goes by it
)


def wall_offset():
    """Return the wall clock less the monotonic one, in ns, from the closest of a few pairs of
    readings.
    """
    pairs = []
    for _ in range(5):
        before = time.perf_counter()
        wall = time.time()
        after = time.perf_counter()
        pairs.append((after - before, int(wall * 1e9) - int((before + after) / 2 * 1e9)))
    return min(pairs)[1]
