"""Queues of known capacity, simulated: arrivals as a Poisson process, servers in FIFO order."""

from __future__ import annotations

import contextlib
import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.load.evidence import Criterion
from pytest_mlms.measure.load.rate_evidence import Drive, Load

Array = NDArray[Any]

_TRIALS = 2_000_000  # queries that the true peak is found from


@dataclass
class Queue:
    """``servers`` that take ``service`` seconds a query, with lognormal ``noise``.

    Query i goes to server i modulo ``servers``. That is first come, first served where the service
    time is fixed. ``spread`` is the lognormal spread of service times between processes. ``slow``
    returns the factor of the service time after so many seconds of load in all. ``times`` are
    service times to draw from, in place of the fixed one.
    """

    service: float
    servers: int = 1
    noise: float = 0.0
    spread: float = 0.0
    slow: Callable[[float], float] = lambda elapsed: 1.0
    elapsed: float = field(default=0.0, init=False)
    times: Array | None = None

    @property
    def capacity(self) -> float:
        """Queries a second that the servers can take."""
        return self.servers / self.service

    def latencies(self, arrivals: Array, rng: np.random.Generator, factor: float = 1.0) -> Array:
        """Return the seconds from each arrival to its answer."""
        latencies = np.empty(len(arrivals))
        for server in range(self.servers):
            came = arrivals[server :: self.servers]
            service = factor * self._draw(len(came), rng)
            if self.noise:
                service *= rng.lognormal(0, self.noise, len(came))
            busy = np.cumsum(service)
            idle = np.maximum.accumulate(came - (busy - service))
            latencies[server :: self.servers] = idle + busy - came
        return latencies

    def _draw(self, count: int, rng: np.random.Generator) -> Array:
        if self.times is None:
            return np.full(count, self.service)
        drawn: Array = rng.choice(self.times, count)
        return drawn

    @contextlib.contextmanager
    def open(self, criterion: Criterion, rng: np.random.Generator) -> Iterator[Drive]:
        """Start a process of the queue."""
        state = float(rng.lognormal(0, self.spread))

        def drive(rate: float, queries: int) -> Load:
            arrivals = poisson(rate, queries, rng)
            factor = state * self.slow(self.elapsed)
            latencies = self.latencies(arrivals, rng, factor)
            seconds = float((arrivals + latencies).max())
            self.elapsed += seconds
            return Load(latencies > criterion.limit, seconds)

        yield drive

    def peak(self, criterion: Criterion) -> float:
        """Return the highest rate at which the criterion is met, to 1 %."""
        low = self.capacity / 1024
        high = self.capacity
        while high / low > 1.003:
            middle = math.sqrt(low * high)
            rng = np.random.default_rng(1)
            latencies = self.latencies(poisson(middle, _TRIALS, rng), rng)
            if np.mean(latencies > criterion.limit) <= 1 - criterion.share:
                low = middle
            else:
                high = middle
        return low


def poisson(rate: float, queries: int, rng: np.random.Generator) -> Array:
    """Return the seconds at which queries arrive; the first one at 0."""
    gaps = rng.exponential(1 / rate, queries)
    gaps[0] = 0
    return np.cumsum(gaps)


def service_times(scheduled: Array, done: Array, servers: int) -> Array:
    """Return how long each query kept its server, all in one unit: first in, first out.

    A query begins when it is due, or when the first server is free.
    """
    free = [0.0] * servers
    times = []
    for came, ended in zip(scheduled.tolist(), done.tolist(), strict=True):
        began = max(came, heapq.heappop(free))
        heapq.heappush(free, ended)
        times.append(ended - began)
    return np.array(times)
