"""The steadiness of a process: plateaus of its latency, and growth of its memory.

A warm-up may end in steps, decay slowly, or never end (Barrett and others 2017, "Virtual machine
warmup blows hot and cold", OOPSLA; Kalibera and Jones 2013, "Rigorous benchmarking in reasonable
time", ISMM). So the whole process is searched for change points, not only its warm-up.

Resident memory moves in steps: pages, arenas of allocators, buffers that are made late, garbage
that Python collects from time to time. A leak grows all the time. So the growth between two
readings may be anything, and what looks like a leak is watched for longer, with a reading after
each block of calls, for which Python's garbage is collected. A small leak fits for thousands of
calls into what was freed before them, so that what malloc has given out is watched, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from mlms_predictors._run.replies import UsageReply

from pytest_mlms.core.statistics import change_points, middle_of_change, theil_sen
from pytest_mlms.measure.agent.predictor import Predictor
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


SUSPECT_GROWTH = 256.0
"""Bytes a call; a process that grows by more, by two readings, is watched."""

_TAKEN_ONCE = 32768
"""Bytes that a process may take once, such as buffers of its output.

ONNX Runtime's take 24 KiB in their first hundred turns.
"""

WATCH_SECONDS = 5.0
"""The longest time that a process is watched for."""

_WATCHED_CALLS = 2000  # that a process is watched for, or the seconds
_WATCHED_BLOCKS = 24
_WATCHED_PARTS = 3
_LEAST_BLOCKS = 2 * _WATCHED_PARTS  # of slow calls: two readings have a slope


def held(usage: UsageReply) -> int:
    """Return the bytes that a process holds on the host and on its device."""
    return usage.memory + (usage.device_memory or 0)


def growth_of(before: UsageReply, after: UsageReply, calls: int) -> float:
    """Return the bytes that each of so many calls added, resident or as allocated by malloc."""
    resident = growth_between(held(before), held(after), calls)
    return max(resident, growth_between(before.allocated, after.allocated, calls))


def slope_of(calls: Array, memory: Array) -> float:
    """Return the bytes that a call adds, given the memory after so many calls.

    The least of Theil and Sen's slopes over three parts of the calls, 0 where it is below: memory
    that moves in a step, or less and less, grows in some of them only.
    """
    parts = zip(
        np.array_split(calls, _WATCHED_PARTS), np.array_split(memory, _WATCHED_PARTS), strict=True
    )
    return max(0.0, min(theil_sen(*part) for part in parts))


def growth_between(before: int, after: int, calls: int) -> float:
    """Return the bytes that a call adds, by what was held before and after so many calls.

    It is 0 for what a process may take once.
    """
    return max(0, after - before - _TAKEN_ONCE) / calls


def watch_growth(predictor: Predictor, call_seconds: float, seconds: float) -> float:
    """Return the bytes that a call adds, by some thousand calls, or ``seconds`` of them.

    A few are made however long they take. The model's batches must be bound. Raises AgentError.
    """
    calls = max(_LEAST_BLOCKS, min(_WATCHED_CALLS, seconds / call_seconds))
    blocks = min(_WATCHED_BLOCKS, int(calls))
    count = math.ceil(calls / _WATCHED_BLOCKS)
    predictor.usage(collect=True)
    resident = []
    allocated = []
    for _ in range(blocks):
        predictor.turn(count)
        usage = predictor.usage(collect=True)
        resident.append(held(usage))
        allocated.append(usage.allocated)
    made = count * np.arange(blocks)
    return max(slope_of(made, np.array(memory)) for memory in (resident, allocated))
