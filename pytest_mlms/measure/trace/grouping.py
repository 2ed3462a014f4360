"""Groups of values by key, and their trimmed means."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Key = TypeVar("Key", bound=Hashable)

_TRIM = 0.2  # of the values, at each end


def grouped(keys: Iterable[Key], values: Array) -> dict[Key, Array]:
    """Return the values of each key, the keys in the order of their first value."""
    groups: dict[Key, list[Any]] = {}
    for key, value in zip(keys, values.tolist(), strict=True):
        group = groups.setdefault(key, [])
        group.append(value)
    return {key: np.array(group) for key, group in groups.items()}


def trimmed_mean(values: Array) -> float:
    """Return the mean without the largest and the smallest fifth; NaN of no values."""
    if not len(values):
        return math.nan
    return float(middle(np.sort(values)).mean())


def middle(ordered: Array) -> Array:
    """Return ordered values without the first and the last fifth."""
    count = len(ordered)
    cut = int(_TRIM * count)
    return ordered[cut : count - cut]
