"""The plan of an item under load: its queries, and how long they go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Limit, Place
from pytest_mlms.manifest.scenarios import Load, MultiStream, Server
from pytest_mlms.measure.agent.load import Batcher, LoadPlan
from pytest_mlms.measure.evaluate.output_sweep import OwnRules
from pytest_mlms.measure.evaluate.performance_plan import ENOUGH, MULTIPLES, RISK, confidences
from pytest_mlms.measure.load.arrivals import loaded_samples, poisson_arrivals, sample_order
from pytest_mlms.measure.load.loadgen import least_within, queries_needed

_SECOND = 1_000_000_000
_STREAM_SHARE = 0.99  # of MultiStream, whose result is the p99
_DRAIN_SHARE = 0.5  # of a schedule, in which queries that wait may still be served
_LEAST_DRAIN = 1.0  # seconds
_STEADY = 100  # times the limit: most queues are then as long as they will be
_BEYOND = 1.01  # times the longest limit, after which a query that waits is over it


@dataclass(frozen=True)
class LoadItemPlan:
    """The runs of an item under load.

    Attributes:
        load: Its scenario.
        place: The scenario's line in the manifest.
        batch_size: Inputs of a sample.
        processes: Fresh processes, each of which is loaded.
        duration: Seconds of the first run of a process, at least, if its share allows it.
        budget: Seconds for all processes.
        limits: The limits under ``thresholds``.
        seed: Draws arrivals and samples; a process adds its number.
        instances: Copies of the model.
        batcher: The dynamic batcher, if there is one.
        arrivals: Arrivals of a replay in nanoseconds from the start.
        rules: Those by which outputs under load are the same as alone.
    """

    load: Load
    place: Place
    batch_size: int
    processes: int
    duration: float
    budget: float
    limits: Sequence[Limit]
    seed: int = 0
    instances: int = 1
    batcher: Batcher | None = None
    arrivals: NDArray[np.int64] | None = None
    rules: OwnRules = dict

    @property
    def share(self) -> float:
        """The percentile that counts, as a share."""
        return _STREAM_SHARE if isinstance(self.load, MultiStream) else self.load.share

    @property
    def criteria(self) -> tuple[Limit, ...]:
        """The limits that the scenario itself has, on a percentile of its queries each."""
        found = {} if isinstance(self.load, MultiStream) else self.load.limits
        return tuple(Limit(quantity, value, self.place) for quantity, value in found.items())

    def limit_on(self, quantity: str) -> float | None:
        """Return the scenario's limit on a quantity of its queries in seconds, if it has one."""
        return next((each.value for each in self.criteria if each.quantity == quantity), None)

    @property
    def longest_limit(self) -> float:
        """The longest limit of the scenario in seconds; 0 where it has none."""
        return max((limit.value for limit in self.criteria), default=0.0)

    def longest_delay(self, call: float) -> float:
        """Return the seconds that a query may delay others, whose call takes ``call`` alone.

        Those of the longest limit. First tokens wait for as long as other answers last, which may
        be longer than their limit: a load must last until all instances are taken.
        """
        is_whole = all(limit.quantity == "query_latency" for limit in self.criteria)
        return self.longest_limit if is_whole else max(self.longest_limit, call)

    @property
    def issue_limit(self) -> float | None:
        """The shortest limit on what a late load generator delays; None where there is none."""
        found = [each.value for each in self.criteria if each.quantity != "query_tpot"]
        return min(found, default=None)

    @property
    def least(self) -> int:
        """Queries that the percentile takes, if none is over the limit."""
        if isinstance(self.load, MultiStream):
            return queries_needed(self.share)
        return least_within(0, self.share)

    @property
    def looks(self) -> Iterator[tuple[int, float]]:
        """The processes of each look at the limits, and the confidence of its intervals.

        Where limits are open there are twice as many, and at least those which decide on a limit
        nearby, and twice that again. Without limits nothing is decided.
        """
        if not self.limits:
            yield self.processes, 1 - RISK
            return
        for multiple, confidence in zip(MULTIPLES, confidences(early=False), strict=True):
            least = ENOUGH if multiple > 1 else 1
            yield max(least, multiple * self.processes), confidence

    @property
    def longest(self) -> float:
        """Seconds that a run of a process may take: its share of the budget."""
        return self.budget / self.processes

    @property
    def samples_per_query(self) -> int:
        """Samples of a query."""
        return self.load.samples_per_query if isinstance(self.load, MultiStream) else 1

    def check(self) -> None:
        """Raise MlmsError where no process can have the queries that the percentile takes."""
        if isinstance(self.load, Server):
            seconds = self.least / self.load.rate
            if seconds > self.longest:
                raise MlmsError(
                    f"{self.place}: {self._needed}, {seconds:,.0f} s at {self.load.rate:g} /s, and "
                    f"a process has {self.longest:,.0f} s; raise --mlms-budget or the rate, or "
                    f"write a lower percentile"
                )
        if self.arrivals is None:
            return
        if self.criteria and len(self.arrivals) < self.least:
            found = f"{self._needed}, and the file has {len(self.arrivals):,}"
            raise MlmsError(
                f"{self.place}: {found}; replay a longer one, or write a lower percentile"
            )
        seconds = float(self.arrivals[-1]) / _SECOND
        if seconds > self.longest:
            found = f"the arrivals take {seconds:,.0f} s, and a process has {self.longest:,.0f} s"
            raise MlmsError(f"{self.place}: {found}; raise --mlms-budget or the speed")

    @property
    def _needed(self) -> str:
        return f"p{100 * self.share:g} takes {self.least:,} queries in each process"

    def runs(self, process: int, samples: int, call: float = 0.0) -> Iterator[LoadPlan]:
        """Yield the runs of a process, each longer than the one before.

        ``samples`` are distinct ones that queries choose from, and a call takes ``call`` seconds
        alone. A run begins with the arrivals of the one before, as one that goes on would, but
        starts with an empty queue. The last is the longest that a process may take.
        """
        seed = self.seed + process
        if isinstance(self.load, MultiStream):
            order = sample_order(
                loaded_samples(samples, seed),
                self.least,
                seed,
                least=self.least,
                samples_per_query=self.samples_per_query,
            )
            yield LoadPlan(
                order.ravel(),
                longest=self.longest,
                samples_per_query=self.samples_per_query,
                seconds=self.duration,
                least=self.least,
            )
            return
        if self.arrivals is not None:
            yield self.scheduled(self.arrivals, seed, samples)
            return
        assert isinstance(self.load, Server), "a load is one of three"
        first = max(self.duration, self.least / self.load.rate, _STEADY * self.longest_delay(call))
        seconds = min(first, self.longest)
        while seconds <= self.longest:
            arrivals = poisson_arrivals(self.load.rate, seed, round(seconds * _SECOND), self.least)
            yield self.scheduled(arrivals, seed, samples)
            seconds *= 2

    def scheduled(self, arrivals: NDArray[np.int64], seed: int, samples: int) -> LoadPlan:
        """Return a run with these arrivals, in nanoseconds from its start.

        It goes on until a query that was not served is over each limit.
        """
        loaded = loaded_samples(samples, seed)
        order = sample_order(loaded, len(arrivals), seed, least=self.least)
        seconds = float(arrivals[-1]) / _SECOND
        drain = max(_LEAST_DRAIN, _DRAIN_SHARE * seconds, _BEYOND * self.longest_limit)
        return LoadPlan(
            order.ravel(),
            longest=seconds + drain,
            scheduled=arrivals,
            instances=self.instances,
            batcher=self.batcher,
        )
