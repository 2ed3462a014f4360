"""The load of a round: the same arrivals on one side, then on the other, and its figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_mlms.agent.load import LoadInterrupted
from pytest_mlms.evaluate.load_plan import LoadItemPlan
from pytest_mlms.evaluate.load_record import LoadRecord, QueryTimes, load_record, query_times
from pytest_mlms.load.percentiles import loadgen_percentile
from pytest_mlms.load.verdict import LATE_SHARE
from pytest_mlms.upgrade.agents import AgentPair
from pytest_mlms.upgrade.figures import Figure
from pytest_mlms.upgrade.rounds import SIDES, Array, Outputs, SideName

__all__ = ["LoadRound", "SideLoad", "load_round"]

_NANO = 1e-9


@dataclass(frozen=True, eq=False)
class SideLoad:
    """The load of one side: the times of all queries, and what is recorded of it."""

    times: QueryTimes
    record: LoadRecord

    def latency(self, share: float) -> float:
        """Return LoadGen's percentile of the latencies, in seconds."""
        return loadgen_percentile(np.sort(self.times.latencies), share) * _NANO


@dataclass(frozen=True, eq=False)
class LoadRound:
    """The load of both sides in a round.

    ``share`` is the percentile that is compared. ``limit`` is the scenario's, in seconds, None
    where it has none.
    """

    sides: Mapping[SideName, SideLoad]
    share: float
    limit: float | None = None

    @property
    def late(self) -> bool:
        """True if the load generator, and not the model, may have caused a side's latencies.

        That is where the p99 of its delay is above 5 % of the limit, or of the percentile itself.
        """
        return any(self._is_late(side) for side in self.sides.values())

    def _is_late(self, side: SideLoad) -> bool:
        limit = side.latency(self.share) if self.limit is None else self.limit
        return side.record.issue_delay > LATE_SHARE * limit

    @property
    def records(self) -> Mapping[str, LoadRecord]:
        """The record of each side, by its name."""
        return {name: side.record for name, side in self.sides.items()}

    def figures(self) -> dict[str, Figure]:
        """Return the quantities by name; a late load says nothing of them."""
        a = self.sides["a"]
        b = self.sides["b"]
        calls = len(a.times)
        error = math.inf if self.late else 0.0
        latencies = (a.latency(self.share), b.latency(self.share))
        figures = {"query_latency": _figure(*latencies, error, calls)}
        if a.record.rate and b.record.rate:
            figures["query_rate"] = _figure(a.record.rate, b.record.rate, error, calls)
        return figures

    def arrays(self) -> dict[str, Array]:
        """Return the times of all queries in nanoseconds, by name."""
        arrays: dict[str, Array] = {}
        for name, side in self.sides.items():
            arrays[f"query_scheduled_{name}"] = side.times.scheduled
            arrays[f"query_issued_{name}"] = side.times.issued
            arrays[f"query_done_{name}"] = side.times.done
        return arrays


def _figure(a: float, b: float, error: float, calls: int) -> Figure:
    return Figure(a, b, math.log(b / a), error, calls)


def load_round(
    plan: LoadItemPlan, pair: AgentPair, order: Sequence[SideName], draw: int
) -> LoadRound:
    """Put the same queries on each side in ``order``; ``draw`` is added to the plan's seed.

    Raises LoadLost where an agent ended.
    """
    batches = pair.batches
    sides = {side: _side_load(plan, pair, side, batches, draw) for side in order}
    limit = plan.criterion.value if plan.criterion else None
    return LoadRound({side: sides[side] for side in SIDES}, plan.share, limit)


def _side_load(
    plan: LoadItemPlan, pair: AgentPair, side: SideName, batches: Sequence[Outputs], draw: int
) -> SideLoad:
    queries = next(plan.runs(draw, len(batches)))
    try:
        with pair.running(side) as predictor:
            run = predictor.load_run(batches, queries)
    except LoadInterrupted as error:
        raise KeyboardInterrupt from error  # pytest shows the name of the class
    times = query_times(queries, run)
    return SideLoad(times, load_record(run, times, None, seed=plan.seed + draw, runs=1))
