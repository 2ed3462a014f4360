"""Contention for cores: the calling thread's wait in the run queue, and figures without it.

The kernel counts the wait (schedstat). Where it doesn't, nothing is known, and nothing is adjusted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from mlms_predictors._run.replies import DeviceBytes

from pytest_mlms.core.quantities.quantity import DeviceTime
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.limits import QUIETER

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
