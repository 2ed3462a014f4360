"""Groups of values by key, and their trimmed means."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["grouped", "trimmed_mean"]

Array = NDArray[Any]
Key = TypeVar("Key", bound=Hashable)

_TRIM = 0.2  # of the values, at each end


def grouped(keys: Iterable[Key], values: Array) -> dict[Key, Array]:
    """Return the values of each key, the keys in the order of their first value."""
    groups: dict[Key, list[Any]] = {}
    for key, value in zip(keys, values.tolist(), strict=True):
        groups.setdefault(key, []).append(value)
    return {key: np.array(group) for key, group in groups.items()}


def trimmed_mean(values: Array) -> float:
    """Return the mean without the largest and the smallest fifth; NaN of no values."""
    cut = int(_TRIM * len(values))
    middle = np.sort(values)[cut : len(values) - cut]
    if not len(middle):
        return float("nan")
    return float(middle.mean())
