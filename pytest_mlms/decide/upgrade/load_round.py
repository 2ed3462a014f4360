"""The same queries on one side, then on the other: their latency and their rate in a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_mlms.decide.upgrade.figures import Figure
from pytest_mlms.decide.upgrade.round_load import LoadRunner, RoundLoad, SideLoad, log_ratio
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.load.evidence import LATE_SHARE


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

    def figures(self) -> dict[str, Figure]:
        """Return the quantities by name; a late load says nothing of them."""
        a = self.sides["a"]
        b = self.sides["b"]
        calls = len(a.times)
        is_valid = not self.late
        latencies = (a.latency(self.share), b.latency(self.share))
        figures = {"query_latency": log_ratio(*latencies, calls, is_valid)}
        if a.record.rate and b.record.rate:
            figures["query_rate"] = log_ratio(a.record.rate, b.record.rate, calls, is_valid)
        return figures


class SameQueries:
    """A load of the same queries on both sides, with new arrivals in each round."""

    def __init__(self, plan: LoadItemPlan) -> None:
        self._plan = plan

    def run(self, runner: LoadRunner, order: Sequence[SideName], draw: int) -> RoundLoad:
        """Put the queries on each side in ``order``; ``draw`` is added to the plan's seed.

        Raises LoadLost where an agent ended.
        """
        plan = self._plan
        queries = next(plan.runs(draw, runner.samples))
        sides = {side: runner.serve(side, queries, plan.seed + draw) for side in order}
        limit = plan.criterion.value if plan.criterion else None
        measured = LoadRound(sides, plan.share, limit)
        return RoundLoad(runner.runs, measured.figures())
