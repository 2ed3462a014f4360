"""The rows of the benchmark's table, and how two sides are measured."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "manifests" / "digits"


class Row(NamedTuple):
    """A number with its name and its bound: more than that is too much."""

    name: str
    found: float
    bound: float


def in_random_order(sides: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Measure each side once, in random order, so that neither is always the first."""
    found = {}
    for name in random.sample(list(sides), len(sides)):
        found[name] = sides[name]()
    return found
