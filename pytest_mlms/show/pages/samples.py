"""Raw samples of an item, read from its artifacts as few numbers that a picture needs.

An artifact that is missing or damaged gives nothing: a picture of the rest is better than none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pytest_mlms.core.arrays import DamagedFile, content_size, read_arrays
from pytest_mlms.show.pages.item import ItemView

_MOST_BYTES = 1 << 28  # of the content of an artifact; a run that was pushed may have a bomb
_QUANTILES = np.concatenate([np.linspace(0, 0.9, 46), [0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 1]])
_MOST_PAIRS = 400  # of the ratios that a picture shows


@dataclass(frozen=True)
class Distribution:
    """Latencies in seconds: how many, and the value of each of some shares."""

    name: str
    count: int
    points: tuple[tuple[float, float], ...]

    @property
    def median(self) -> float:
        """The median in seconds."""
        return min(self.points, key=lambda point: abs(point[1] - 0.5))[0]


@dataclass(frozen=True)
class PairRatios:
    """B over A of each pair of turns, in the order in which they ran, by round from 1 on."""

    number: int
    ratios: tuple[float, ...]


def process_distributions(item: ItemView) -> Sequence[Distribution]:
    """Return the latencies of each process of a performance item."""
    found: list[Distribution] = []
    for number, arrays in enumerate(_arrays_of(item, "samples-"), 1):
        if _have(arrays, "start", "end"):
            latencies = arrays["end"] - arrays["start"]
            found += _distribution(f"process {number}", latencies)
    return found


def side_distributions(item: ItemView) -> Sequence[Distribution]:
    """Return the latencies of both sides of an upgrade, over all of its rounds."""
    walls: dict[str, list[Any]] = {"wall_a": [], "wall_b": []}
    for arrays in _arrays_of(item, "pairs-"):
        if _have(arrays, *walls):
            for name, values in walls.items():
                values.append(np.ravel(arrays[name]))
    return _both_sides(item, *walls.values())


def query_distributions(item: ItemView) -> Sequence[Distribution]:
    """Return the latencies of queries of both sides of an upgrade, over all of its rounds.

    They are those of the first run of load in each round.
    """
    sides: dict[str, list[Any]] = {"a": [], "b": []}
    for arrays in _arrays_of(item, "pairs-"):
        found = {side: _query_latencies(arrays, side) for side in sides}
        if all(latencies.size for latencies in found.values()):
            for side, values in sides.items():
                values.append(found[side])
    return _both_sides(item, *sides.values())


def _query_latencies(arrays: dict[str, Any], side: str) -> Any:
    """Return seconds, none where they are missing."""
    scheduled = arrays.get(f"query_scheduled_{side}")
    done = arrays.get(f"query_done_{side}")
    if scheduled is None or done is None or scheduled.shape != done.shape:
        return np.empty(0)
    if scheduled.dtype.kind != "i" or done.dtype.kind != "i":
        return np.empty(0)
    return (done - scheduled) * 1e-9


def _both_sides(item: ItemView, a: Sequence[Any], b: Sequence[Any]) -> Sequence[Distribution]:
    """Return the distribution of each side's values of all rounds, where there are any."""
    if item.against is None or not a or not b:
        return []
    return [
        *_distribution(f"A: {item.baseline_label}", np.concatenate(a)),
        *_distribution(f"B: {item.candidate_label}", np.concatenate(b)),
    ]


def pair_ratios(item: ItemView) -> Sequence[PairRatios]:
    """Return the ratio of each pair of turns of an upgrade, thinned evenly where there are many."""
    rounds = {}
    for number, arrays in enumerate(_arrays_of(item, "pairs-"), 1):
        if _have(arrays, "wall_a", "wall_b"):
            a = arrays["wall_a"]
            b = arrays["wall_b"]
            if a.shape == b.shape:
                rounds[number] = _ratios(a, b)
    total = sum(map(len, rounds.values()))
    step = max(math.ceil(total / _MOST_PAIRS), 1)
    found = []
    for number, ratios in rounds.items():
        thinned = ratios[::step].tolist()
        found.append(PairRatios(number, tuple(thinned)))
    return found


def _ratios(a: Any, b: Any) -> Any:
    """Return B over A by the mean of each pair's calls, where that is a number."""
    with np.errstate(all="ignore"):
        means_a = a.reshape(len(a), -1).mean(axis=1)
        means_b = b.reshape(len(b), -1).mean(axis=1)
        ratios = means_b / means_a
    return ratios[np.isfinite(ratios)]


def _arrays_of(item: ItemView, prefix: str) -> Iterator[dict[str, Any]]:
    for path in item.artifacts_like(prefix, ".npz").values():
        try:
            if content_size(path) <= _MOST_BYTES:
                yield read_arrays(path)
        except (OSError, DamagedFile):
            continue


def _have(arrays: dict[str, Any], *names: str) -> bool:
    """Return whether these arrays are there, have numbers, and have some."""
    for name in names:
        values = arrays.get(name)
        if values is None or values.dtype.kind != "f" or not values.size:
            return False
    return True


def _distribution(name: str, latencies: Any) -> Iterator[Distribution]:
    """Yield the distribution of some latencies, nothing where there is no number among them."""
    finite = latencies[np.isfinite(latencies)]
    if not finite.size:
        return
    shares = _QUANTILES
    if finite.size <= len(_QUANTILES):
        shares = np.linspace(0, 1, finite.size)
    values = np.quantile(finite, shares)
    points = zip(values.tolist(), shares.tolist(), strict=True)
    yield Distribution(name, int(finite.size), tuple(points))
