"""The steadiness of a process: waits for cores, plateaus of latency, and growth of memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from mlms_predictors._run.replies import DeviceBytes, UsageReply

from pytest_mlms.core.quantities.quantity import DeviceTime
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.statistics import change_points, middle_of_change, theil_sen
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.limits import QUIETER

if TYPE_CHECKING:
    from pytest_mlms.core.token_times import TokenTimes

LARGE_WAIT = 0.1
"""Share of the time that is worth a warning: more than a limit usually leaves."""


@dataclass(frozen=True, eq=False)
class TimesLessWait:
    """The measurements of a process less its wait, as ``quantities.ProcessValues`` has them."""

    latencies: Array
    seconds_per_input: float
    first_seconds: float
    load_seconds: float
    time_to_answer: float
    memory_growth: float
    peak_bytes: int
    import_bytes: float
    peak_is_since_load: bool
    joules_per_input: float
    energy_missing: str
    batch_agreement: float
    batch_missing: str
    device_memory: DeviceBytes | None = None
    device_time: DeviceTime | None = None
    tokens: TokenTimes | None = None
    seconds_per_token: float = math.nan

    @property
    def mean_latency(self) -> float:
        """Mean latency of the timed calls, in seconds."""
        return float(self.latencies.mean())

    def percentile(self, percent: float) -> float:
        """Return a percentile (0 to 100) of the timed calls' latencies, in seconds."""
        return float(np.percentile(self.latencies, percent))


def waited(times: Mapping[str, Array]) -> float | None:
    """Return the share of a run that the calling thread waited for a core; None if not counted.

    ``times`` are a ScenarioRun's. The counter is the whole thread's, so a kernel that
    counts has counted something.
    """
    counter = times["wait"]
    if counter[-1] == 0:
        return None
    seconds = times["end"][-1] - times["start"][0]
    share = (counter[-1] - counter[0]) / seconds
    return min(1.0, float(share))


def latencies_less_wait(times: Mapping[str, Array]) -> Array:
    """Return the seconds of each call less its wait for a core.

    Where the counter was read at both ends only, as offline, the longest calls are cut to one
    level, as waiting makes calls longer. Where the k longest are cut, the level is (their sum - the
    wait) / k, which is largest for the right k.
    """
    latencies = times["end"] - times["start"]
    if len(times["at"]) > 2:
        waits = call_waits(times["start"], times["end"], times["wait"], times["at"])
        return np.asarray(latencies - waits)
    seconds = float(times["wait"][-1] - times["wait"][0])
    longest_first = np.sort(latencies)[::-1]
    counts = np.arange(1, len(latencies) + 1)
    levels = (np.cumsum(longest_first) - seconds) / counts
    return np.asarray(np.minimum(latencies, max(0.0, float(levels.max()))))


def latencies_of_running(times: Mapping[str, Array]) -> Array:
    """Return the seconds of each call less its wait, NaN if it waited for half of its time or more.

    What is left of such a call is mostly the error of the counter.
    """
    latencies = times["end"] - times["start"]
    running = latencies_less_wait(times)
    return np.where(2 * running > latencies, running, np.nan)


def call_waits(start: Array, end: Array, wait: Array, at: Array) -> Array:
    """Return the seconds that each call waited for a core.

    ``start`` and ``end`` are the times of the calls; ``wait`` is the kernel's counter of waiting,
    read when ``at`` calls were done. The wait between two readings is attributed to the longest
    call between them, because waiting makes a call longer. A wait that is longer than that call
    was outside of it and is attributed to none.
    """
    durations = end - start
    bounds = at.astype(int)
    interval = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    longest_first = np.lexsort((-durations, interval))
    longest = longest_first[bounds[:-1]]
    waits = np.zeros(len(start))
    between = np.diff(wait)
    waits[longest] = np.where(between < durations[longest], between, 0.0)
    return waits


def explain_wait(shares: Sequence[float | None], estimates: Mapping[str, Estimate]) -> str:
    """Return a line on processes that waited for cores for a large part; "" where they did not."""
    known = [share for share in shares if share is not None]
    if not known or fmean(known) < LARGE_WAIT:
        return ""
    text = f"the measuring thread waited for a core {100 * fmean(known):.0f} % of the time"
    mean = estimates.get("latency_mean")
    if mean is not None and mean.less_wait is not None:
        value = format_quantity(mean.value, "s")
        less_wait = format_quantity(mean.less_wait, "s")
        text += f" (mean latency {value}, {less_wait} without the wait)"
    return f"{text}; {QUIETER}"


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
    """Return the bytes that a call adds, by the bytes held before and after so many calls.

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
