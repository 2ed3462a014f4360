"""Growth of memory of both sides in a round of an upgrade."""

from __future__ import annotations

from collections.abc import Mapping

from mlms_predictors._run.replies import UsageReply

from pytest_mlms.evaluate.memory_growth import SECONDS, SUSPECT, growth_of, watch_growth
from pytest_mlms.upgrade.agents import AgentPair
from pytest_mlms.upgrade.rounds import SIDES, SideName

__all__ = ["RoundGrowth"]


class RoundGrowth:
    """The memory of both sides before the turns of a round, and what it became.

    The turns tell it at no cost. Where a side seems to leak, or growth is a gate, both are watched
    for longer after them, ``longest`` seconds in all.
    """

    def __init__(self, pair: AgentPair, is_gate: bool, longest: float) -> None:
        self._pair = pair
        self._is_gate = is_gate
        self._seconds = min(SECONDS, longest / 2)
        self._before = self._usage()

    def growth(self, calls: int, call_seconds: float) -> Mapping[SideName, float]:
        """Return the bytes that a call of each side adds, after ``calls`` calls of its turns."""
        after = self._usage()
        found = {side: growth_of(self._before[side], after[side], calls) for side in SIDES}
        if not self._is_gate and max(found.values()) < SUSPECT:
            return found
        for side in SIDES:
            with self._pair.running(side) as predictor:
                found[side] = watch_growth(predictor, call_seconds, self._seconds)
        return found

    def _usage(self) -> dict[SideName, UsageReply]:
        found = {}
        for side in SIDES:
            with self._pair.running(side) as predictor:
                found[side] = predictor.usage()
        return found
