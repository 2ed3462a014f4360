"""Series of values as a line of block characters."""

from __future__ import annotations

from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """Return a character for each value, from the lowest block to the highest.

    Values that are all the same are in the middle. The lowest value is the lowest block, so a line
    tells when something changed, and not by how much.
    """
    if not values:
        return ""
    low = min(values)
    span = max(values) - low
    if span <= 0:
        return _BLOCKS[3] * len(values)
    highest = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((value - low) / span * highest)] for value in values)
