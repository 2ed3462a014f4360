"""How well the search finds the peak of real agents, whose peak queueing theory knows."""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.agent.load import LoadPlan
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.load.arrivals import poisson_arrivals
from pytest_mlms.measure.load.evidence import LATE_SHARE, Criterion
from pytest_mlms.measure.load.peak import find_peak
from pytest_mlms.measure.load.rate_evidence import Drive, Load, Peak, PeakPlan
from tests.support.load_agents import LIBRARY, in_turn, open_server
from tests.support.queues import Queue, service_times

_SERVICE = 0.002  # seconds asleep in a call
_CALLS = 300  # back to back, whose median is the service time
_LIMIT = 10  # calls
_SHARE = 0.9
_PRECISION = 0.05
_RESOLUTION = 1.005  # of the true peak
_SECOND = 1_000_000_000


class _Found(NamedTuple):
    """An answer beside the true peak, which is that of the service times in its runs of load.

    ``worst`` is the 99.9th percentile of these in seconds: other work on the machine shows there.
    """

    peak: float
    answer: Peak
    late: int
    worst: float

    @property
    def is_inside(self) -> bool:
        """True if the true peak is between the ends of the answer."""
        low = self.answer.good <= _RESOLUTION * self.peak
        return low and self.peak <= _RESOLUTION * self.answer.bad

    @property
    def is_near(self) -> bool:
        """True if the middle of the answer is within the precision of the true peak."""
        rate = self.answer.rate
        if not 0 < rate < math.inf:
            return False
        return abs(math.log(rate / self.peak)) <= math.log1p(_PRECISION)


def print_real_table(runs: int, budget: float) -> None:
    """Print a row for each search, and how many have the peak inside and within the precision."""
    titles = (
        "| run | peak | good | bad | inside | within 5 % | late | p99.9 | load | load average |"
    )
    print(titles)
    print("|---" * (titles.count("|") - 1) + "|")
    found = []
    for number in range(runs):
        found.append(_search(number, budget))
        print(_row(number, found[-1]), flush=True)
    inside = sum(each.is_inside for each in found)
    near = sum(each.is_near for each in found)
    print(f"inside: {inside} of {runs}; middle within 5 %: {near} of {runs}")


def _search(number: int, budget: float) -> _Found:
    """Search the peak of the predictor ``server`` (M/D/1)."""
    with tempfile.TemporaryDirectory() as folder:
        service = _service_time(Path(folder))
        criterion = Criterion(_LIMIT * _SERVICE, _SHARE, _PRECISION)
        processes = _Processes(Path(folder), criterion, seed=1000 * number)
        plan = PeakPlan(criterion, 1 / service, service, budget)
        answer = find_peak(plan, processes.open)
        times = np.concatenate(processes.times)
        queue = Queue(float(times.mean()), times=times)
        worst = float(np.percentile(times, 99.9))
        return _Found(queue.peak(criterion), answer, processes.late, worst)


def _service_time(folder: Path) -> float:
    """Return the median seconds from one call to the next, with the agent's own time between."""
    with open_server(folder, seconds=_SERVICE) as server:
        run = server.load_run(LIBRARY, LoadPlan(np.arange(4), 60.0, least=_CALLS))
    return float(np.median(np.diff(run.done))) / _SECOND


class _Processes:
    """Fresh agents that take load.

    ``late`` counts the runs whose queries were issued late, ``times`` has the seconds that each
    query kept the model, by run.
    """

    def __init__(self, folder: Path, criterion: Criterion, seed: int) -> None:
        self._folder = folder
        self._criterion = criterion
        self._seed = seed
        self.late = 0
        self.times: list[NDArray[np.float64]] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[Drive]:
        """Start an agent."""
        with open_server(self._folder, seconds=_SERVICE) as server:
            yield lambda rate, queries: self._drive(server, rate, queries)

    def _drive(self, server: Predictor, rate: float, queries: int) -> Load:
        self._seed += 1
        scheduled = poisson_arrivals(rate, self._seed, 0, queries)
        longest = 2 * float(scheduled[-1]) / _SECOND + 10
        run = server.load_run(LIBRARY, LoadPlan(in_turn(queries), longest, scheduled))
        self.times.append(service_times(run.scheduled, run.done, servers=1) / _SECOND)
        over = np.ones(queries, bool)
        over[run.queries] = run.latencies > self._criterion.limit
        delay = float(np.percentile(run.issue_delays, 99))
        is_late = delay > LATE_SHARE * self._criterion.limit
        self.late += is_late
        return Load(over, float(run.done.max()) / _SECOND, "late" if is_late else "")


def _row(number: int, found: _Found) -> str:
    answer = found.answer
    return (
        f"| {number} | {found.peak:.1f} /s | {answer.good:g} | {answer.bad:g} "
        f"| {_yes(found.is_inside)} | {_yes(found.is_near)} | {found.late} "
        f"| {found.worst * 1e3:.2f} ms | {answer.seconds:.0f} s | {os.getloadavg()[0]:.1f} |"
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
