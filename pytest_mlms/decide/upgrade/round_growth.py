"""Growth of memory of both sides in a round of an upgrade."""

from __future__ import annotations

from collections.abc import Mapping

from mlms_predictors._run.replies import UsageReply

from pytest_mlms.decide.upgrade.agents import AgentPair, TurnPlan
from pytest_mlms.decide.upgrade.rounds import SIDES, SideName
from pytest_mlms.measure.evaluate.steadiness import (
    SUSPECT_GROWTH,
    WATCH_SECONDS,
    growth_of,
    watch_growth,
)

_CALLS = 60  # by which a leak of a kilobyte shows
_CALL_SECONDS = 0.5  # that these may take a side


class RoundGrowth:
    """The memory of both sides before the turns of a round, and what it became.

    The turns tell it at no cost, but in an item's first round, which has more calls where there
    were few. Where a side seems to leak, or ``watches`` is set, both are watched for longer after
    them, ``longest`` seconds in all.
    """

    def __init__(self, pair: AgentPair, watches: bool, longest: float) -> None:
        self._pair = pair
        self._watches = watches
        self._seconds = min(WATCH_SECONDS, longest / 2)
        self._before = self._usage()

    def growth(
        self, calls: int, call_seconds: float, is_first: bool = False
    ) -> Mapping[SideName, float]:
        """Return the bytes that a call of each side adds, after ``calls`` calls of its turns."""
        if is_first and not self._watches:
            calls += self._call_more(_CALLS - calls, call_seconds)
        after = self._usage()
        found = {side: growth_of(self._before[side], after[side], calls) for side in SIDES}
        if not self._watches and max(found.values()) < SUSPECT_GROWTH:
            return found
        for side in SIDES:
            with self._pair.running(side) as predictor:
                found[side] = watch_growth(predictor, call_seconds, self._seconds)
        return found

    def _call_more(self, calls: int, call_seconds: float) -> int:
        """Make so many calls, or those that there is time for; return how many."""
        calls = max(0, min(calls, int(_CALL_SECONDS / call_seconds)))
        if calls:
            for side in SIDES:
                self._pair.turn(side, TurnPlan(1, calls - 1))
        return calls

    def _usage(self) -> dict[SideName, UsageReply]:
        found = {}
        for side in SIDES:
            with self._pair.running(side) as predictor:
                found[side] = predictor.usage()
        return found
