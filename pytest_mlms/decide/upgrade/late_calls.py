"""Further calls of a round: late in the life of a process, and those that tell a leak of memory.

The timed turns of a round are few. A side may get slower after a thousand calls: so in the first
round both sides go on to late calls, and where B gets slower there than in its turns, or seems to
stall more often, all further rounds do. That the first is chosen for it weighs little: it is one of
eight or more, chosen for half of what they must show. Where these calls are a gate, each round has
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from mlms_predictors._run.replies import UsageReply

from pytest_mlms.core.statistics import fisher_probability
from pytest_mlms.decide.upgrade.agents import AgentPair, TurnPlan
from pytest_mlms.decide.upgrade.figures import count_stalls
from pytest_mlms.decide.upgrade.interleave_plan import seconds_of, undisturbed
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, SideName
from pytest_mlms.measure.evaluate.steadiness import (
    SUSPECT_GROWTH,
    WATCH_SECONDS,
    even_out,
    growth_of,
    watch_growth,
)

_LATE_CALLS = 2000  # before the late ones
LATE_SECONDS = 0.4
"""Seconds that these may take a side."""
CALLS_BEFORE = 640
"""Calls that must come before; after fewer ones none is later than the timed ones."""
_TURNS = 2
_NOTICED = math.log1p(0.05)
_STALLS_SEEM_MORE = 0.05  # probability by chance, up to which further rounds count stalls, too
_STALLS_MAY_BE_MORE = 0.25  # up to which the next round counts them


class FoundLate(NamedTuple):
    """Late calls of a round by side.

    ``seconds`` are those of a late call by the clock, none where they don't count. ``all_times``
    are those of each call up to the late ones, as if all inputs took the same time.
    """

    seconds: Mapping[SideName, float] = MappingProxyType({})
    all_times: Mapping[SideName, Array] = MappingProxyType({})


class LateCalls:
    """The late calls of an item's rounds.

    ``wanted`` is whether rounds have them: B got slower in the first, or seems to stall more often,
    or they are a gate. None: no round has told yet. Only stalls count where B didn't get slower.
    """

    def __init__(self, is_gate: bool = False) -> None:
        self.wanted: bool | None = is_gate or None
        self._is_slower = is_gate
        self._calls = 0
        self._stalls = dict.fromkeys(SIDES, 0)

    def run(
        self,
        pair: AgentPair,
        turns: TurnPlan,
        slowest: float,
        change: float,
        draw_order: Callable[[], Sequence[SideName]],
    ) -> FoundLate:
        """Make the late calls of a round, if they are wanted or may be.

        ``turns`` are those of the round, in which a call of the slower side took ``slowest``
        seconds, and ``change`` is the log of B / A.
        """
        calls = min(_LATE_CALLS, int(LATE_SECONDS / slowest))
        if calls < CALLS_BEFORE or self.wanted is False:
            return FoundLate()
        cycle = len(pair.order)  # whole ones, for batches that take longer than others
        timed = cycle * math.ceil(turns.count / cycle)
        medians: dict[SideName, list[float]] = {side: [] for side in SIDES}
        all_times: dict[SideName, Array] = {}
        for side in draw_order():
            times = undisturbed(pair.turn(side, TurnPlan(calls + timed, turns.skip)), pair.clocks)
            medians[side].append(float(np.median(times[calls:])))
            all_times[side] = even_out([times], pair.groups)[0]
        for _ in range(1, _TURNS):
            for side in draw_order():
                turn = pair.turn(side, TurnPlan(timed, turns.skip))
                medians[side].append(seconds_of(turn, pair.clocks))
        late = {side: float(np.median(medians[side])) for side in SIDES}
        if min(late.values()) <= 0:
            return FoundLate(all_times=all_times)
        if self.wanted is None:
            self._is_slower = math.log(late["b"] / late["a"]) > change + _NOTICED
            self.wanted = self._is_slower or self._seems_to_stall(all_times)
        return FoundLate(late if self._is_slower else {}, all_times)

    def _seems_to_stall(self, all_times: Mapping[SideName, Array]) -> bool | None:
        """Return whether B stalls more often in the rounds so far; None where it may."""
        self._calls += min(map(len, all_times.values()))
        for side, times in all_times.items():
            self._stalls[side] += count_stalls(times)
        a, b = self._stalls.values()
        chance = fisher_probability(a, max(a, self._calls), b, max(b, self._calls))
        if chance <= _STALLS_SEEM_MORE:
            return True
        return None if chance <= _STALLS_MAY_BE_MORE else False


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
        self._is_seen = all("memory_growth" not in pair[side].unmeasured for side in SIDES)
        self._before = self._usage() if self._is_seen else {}

    def growth(
        self, calls: int, call_seconds: float, is_first: bool = False
    ) -> Mapping[SideName, float]:
        """Return the bytes that a call of each side adds, after ``calls`` calls of its turns.

        They are 0 where a side's memory isn't seen.
        """
        if not self._is_seen:
            return dict.fromkeys(SIDES, 0.0)
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
