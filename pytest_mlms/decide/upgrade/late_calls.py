"""Calls late in the life of a process, as of a side that gets slower after a thousand calls.

The timed turns of a round are few. So in the first round both sides go on to late calls, and where
B gets slower there than in its turns, all further rounds do. That the first is chosen for it weighs
little: it is one of eight or more, chosen for half of what they must show. Where these calls are a
gate, each round has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from pytest_mlms.decide.upgrade.agents import AgentPair, TurnPlan
from pytest_mlms.decide.upgrade.rounds import SIDES, SideName
from pytest_mlms.decide.upgrade.turn_watch import seconds_of

_CALLS = 2000  # before the late ones
SECONDS = 0.4
"""Seconds that these may take a side."""
LEAST_CALLS = 640
"""Calls that must come before; after fewer ones none is later than the timed ones."""
_TURNS = 2
_NOTICED = math.log1p(0.05)
_UNKNOWN: Mapping[SideName, float] = MappingProxyType({})


class LateCalls:
    """The late calls of an item's rounds.

    ``wanted`` is whether rounds have them: B got slower in the first, or they are a gate. None: no
    round has told yet.
    """

    def __init__(self, is_gate: bool = False) -> None:
        self.wanted: bool | None = is_gate or None

    def run(
        self,
        pair: AgentPair,
        turns: TurnPlan,
        slowest: float,
        change: float,
        draw_order: Callable[[], Sequence[SideName]],
    ) -> Mapping[SideName, float]:
        """Return the seconds of a late call of each side, by their clock; none where none counts.

        ``turns`` are those of the round, in which a call of the slower side took ``slowest``
        seconds, and ``change`` is the log of B / A.
        """
        calls = min(_CALLS, int(SECONDS / slowest))
        if calls < LEAST_CALLS or self.wanted is False:
            return _UNKNOWN
        cycle = len(pair.order)  # whole ones, for batches that take longer than others
        timed = cycle * math.ceil(turns.count / cycle)
        plans = [TurnPlan(timed, calls), *[TurnPlan(timed, turns.skip)] * (_TURNS - 1)]
        found: dict[SideName, list[float]] = {side: [] for side in SIDES}
        for plan in plans:
            for side in draw_order():
                found[side].append(seconds_of(pair.turn(side, plan), pair.clocks))
        late = {side: float(np.median(found[side])) for side in SIDES}
        if min(late.values()) <= 0:
            return _UNKNOWN
        if self.wanted is None:
            self.wanted = math.log(late["b"] / late["a"]) > change + _NOTICED
        return late if self.wanted else _UNKNOWN
