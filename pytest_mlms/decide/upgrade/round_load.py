"""The load of a round: runs of queries on both sides in turns, and what is kept of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pytest_mlms.decide.upgrade.agents import AgentPair, TurnPlan
from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_record import PeakRecord
from pytest_mlms.decide.upgrade.rounds import Array, SideName
from pytest_mlms.measure.agent.load import LoadInterrupted, LoadLost, LoadPlan, LoadRun
from pytest_mlms.measure.evaluate.load_process import QueryTimes, load_record, query_times
from pytest_mlms.measure.evaluate.process_result import LoadRecord
from pytest_mlms.measure.load.early_stopping import loadgen_percentile

_NANO = 1e-9
_MOST_CALLS = 30  # that are timed ahead of a load
_CALLS_SECONDS = 1.0  # that they may take


@dataclass(frozen=True, eq=False)
class SideLoad:
    """A run of load on one side: the times of all queries, and what is recorded of it."""

    times: QueryTimes
    record: LoadRecord

    def latency(self, share: float) -> float:
        """Return LoadGen's percentile of the latencies, in seconds."""
        return loadgen_percentile(np.sort(self.times.latencies), share) * _NANO


@dataclass(frozen=True, eq=False)
class RoundLoad:
    """The load of a round.

    Attributes:
        runs: The runs of load: "a" is the first one on side A, "a2" the second.
        figures: The quantities that they gave, by name.
        peaks: The peak of each side, where it was searched.
        without_peak: The reason why the candidate has no peak, "" otherwise.
    """

    runs: Mapping[str, SideLoad]
    figures: Mapping[str, Figure]
    peaks: Mapping[SideName, PeakRecord] = field(default_factory=dict)
    without_peak: str = ""

    @property
    def records(self) -> Mapping[str, LoadRecord]:
        """The record of each run, by its name."""
        return {name: run.record for name, run in self.runs.items()}


class LoadRunner:
    """Puts queries on the sides of a pair, and has the times of all of them."""

    def __init__(self, pair: AgentPair) -> None:
        self._pair = pair
        self._runs: dict[str, SideLoad] = {}
        self._times: dict[str, QueryTimes] = {}

    @property
    def runs(self) -> Mapping[str, SideLoad]:
        """The runs that came to their end, by name."""
        return self._runs

    @property
    def samples(self) -> int:
        """The number of samples that queries choose from."""
        return len(self._pair.batches)

    def serve(self, side: SideName, queries: LoadPlan, seed: int) -> SideLoad:
        """Put queries on a side.

        Raises LoadLost where its agent ended, and KeyboardInterrupt at Ctrl-C.
        """
        name = self._next_name(side)
        try:
            with self._pair.running(side) as predictor:
                run = predictor.load_run(self._pair.batches, queries)
        except LoadLost as error:
            self._times[name] = _received(error.run)
            raise
        except LoadInterrupted as error:
            self._times[name] = _received(error.run)
            raise KeyboardInterrupt from error  # pytest shows the name of the class
        times = query_times(queries, run)
        self._times[name] = times
        self._runs[name] = SideLoad(times, load_record(run, times, None, seed=seed, runs=1))
        return self._runs[name]

    def call_seconds(self, side: SideName) -> Array:
        """Return the seconds of some calls of a side without other load."""
        first = _seconds(self._pair, side, 1)
        count = int(_CALLS_SECONDS / float(first[0]))
        return _seconds(self._pair, side, max(1, min(_MOST_CALLS, count)))

    def arrays(self) -> dict[str, Array]:
        """Return the times of all queries in nanoseconds, also of a run that was cut off."""
        arrays: dict[str, Array] = {}
        for name, times in self._times.items():
            arrays[f"query_scheduled_{name}"] = times.scheduled
            arrays[f"query_issued_{name}"] = times.issued
            arrays[f"query_done_{name}"] = times.done
        return arrays

    def _next_name(self, side: SideName) -> str:
        number = 1 + sum(name[0] == side for name in self._times)
        return side if number == 1 else f"{side}{number}"


class LoadStrategy(Protocol):
    """The load that each round has; it may remember what earlier rounds gave."""

    def run(self, runner: LoadRunner, order: Sequence[SideName], draw: int) -> RoundLoad:
        """Put load on both sides in ``order``; ``draw`` is added to the seed of queries."""


def log_ratio(a: float, b: float, calls: int, is_valid: bool = True) -> Figure:
    """Return the figure of a quantity of which the rounds are the samples."""
    return Figure(a, b, math.log(b / a), 0.0 if is_valid else math.inf, calls)


def _seconds(pair: AgentPair, side: SideName, count: int) -> Array:
    turn = pair.turn(side, TurnPlan(count))
    return np.asarray(turn.times["end"] - turn.times["start"])


def _received(run: LoadRun) -> QueryTimes:
    return QueryTimes(run.scheduled, run.issued, run.done, 0)
