"""Plateaus of a process, and how far its calls still get faster or slower: pure functions.

A warm-up may end in steps, decay slowly, or never end (Barrett and others 2017, "Virtual machine
warmup blows hot and cold", OOPSLA; Kalibera and Jones 2013, "Rigorous benchmarking in reasonable
time", ISMM). So the whole process is searched for change points, not only its warm-up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.statistics import change_points, middle_of_change
from pytest_mlms.measure.agent.process import Array

LEAST_CHANGE = 0.03
"""Share by which the plateaus of a process that did not settle differ at least."""

_REACH = 4  # how many times longer than its runs a change is taken to go on
_BLOCKS = 32  # of the timed run; each counts as its median
_MOST_CHANGE = 1000.0  # factor; larger ones say no more
_EDGE = 16  # a change in the first or the last 1/16 of the run is not inside of it
_FLOOR = 0.002  # deviation of blocks below which no change is looked for
_CALLS_OF_KIND = 3  # of which its level is known


class Settling(NamedTuple):
    """The last plateau of a timed run over its highest one (``fall``) and its lowest (``rise``).

    Both are 1 where the run is on one plateau. ``runs`` is how many runs there were until then,
    each of which was repeated as it had not settled.
    """

    fall: float
    rise: float
    runs: int = 1

    @property
    def is_settled(self) -> bool:
        """True if the run is on one plateau, or on plateaus that are nearly the same."""
        return max(self.change, 1 / self.change) < 1 + LEAST_CHANGE

    @property
    def change(self) -> float:
        """The larger of both, as a factor: 0.9 where calls got 10 % faster."""
        return self.fall if self.fall * self.rise < 1 else self.rise

    @property
    def reach(self) -> Reach:
        """The factors that times may still change by: as if that went on for four times as long."""
        power = _REACH * self.runs
        return Reach(self.fall**power, self.rise**power)


class Reach(NamedTuple):
    """The factors that times may still fall and rise by."""

    lowest: float
    highest: float

    @property
    def room(self) -> float:
        """The factor by which a limit is away that no change reaches."""
        return max(1 / self.lowest, self.highest)


SETTLED = Settling(1.0, 1.0)


def settling_of(runs: Sequence[Array], timed: int = 1) -> Settling:
    """Return how the calls of the last of a process's runs change.

    ``runs`` are the latencies of all calls, in order; NaN is left out. Those before the last run
    are warm-up: they show where the plateau began that the run is on. The last ``timed`` of them
    had to be timed. A run in which nothing is left doesn't show any change.
    """
    runs = [run[~np.isnan(run)] for run in runs]
    if len(runs[-1]) == 0:
        return SETTLED
    size = max(1, len(runs[-1]) // _BLOCKS)
    *before, timed_blocks = [_block_medians(run, size) for run in runs]
    earlier = np.concatenate([np.empty(0), *before])[-2 * _BLOCKS :]
    medians = np.concatenate([earlier, timed_blocks])
    begin = len(earlier)
    edge = max(2, len(timed_blocks) // _EDGE)
    changes = change_points(np.log(medians), _FLOOR)
    inside = [place for place in changes if begin + edge <= place <= len(medians) - edge]
    middle = middle_of_change(timed_blocks)
    if middle and not inside:
        inside = [begin + middle]
    bounds = [begin, *inside]
    if len(bounds) == 1:
        return SETTLED
    levels = [float(np.median(part)) for part in np.split(medians, bounds)[1:]]
    fall = max(levels[-1] / max(levels), 1 / _MOST_CHANGE)
    rise = min(levels[-1] / min(levels), _MOST_CHANGE)
    return Settling(fall, rise, timed)


def even_out(runs: Sequence[Array], kinds_of_calls: Sequence[int] | Array) -> list[Array]:
    """Return the latencies of runs as if all inputs took the same time.

    Their kinds are the inputs, or their groups, in a cycle that each run begins anew. Calls are
    divided by the median of their kind in the last run, if that has enough of them. So what still
    changes is no matter of which inputs came first.
    """
    kinds = np.asarray(kinds_of_calls)
    if len(kinds) < 2:
        return list(runs)
    of_calls = [kinds[np.arange(len(run)) % len(kinds)] for run in runs]
    known = ~np.isnan(runs[-1])
    last, last_kinds = runs[-1][known], of_calls[-1][known]
    if len(last) == 0:
        return list(runs)
    overall = np.median(last)
    levels = np.full(int(kinds.max()) + 1, overall)
    for kind in np.unique(last_kinds):
        found = last[last_kinds == kind]
        if len(found) >= _CALLS_OF_KIND:
            levels[kind] = np.median(found)
    return [run * overall / levels[places] for run, places in zip(runs, of_calls, strict=True)]


def _block_medians(latencies: Array, size: int) -> Array:
    """Return the medians of blocks of ``size`` calls; those that fill no block are left out."""
    count = len(latencies) // size
    blocks = latencies[: count * size].reshape(count, size)
    return np.asarray(np.median(blocks, axis=1))
