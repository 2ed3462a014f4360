"""The end of a round's turns: after their time, or once the error of its latency is small."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pytest_mlms.decide.upgrade.figures import seconds_of_turns
from pytest_mlms.decide.upgrade.interleave_plan import LEAST_SECONDS, InterleavePlan, next_look
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, SideName
from pytest_mlms.measure.agent.predictor import Clocks, Turn
from pytest_mlms.measure.evaluate.contention import call_waits

_MOST_PAIRS = 2000


def durations(turn: Turn) -> Array:
    """Return the seconds of each call of a turn."""
    return np.asarray(turn.times["end"] - turn.times["start"])


def waits(turn: Turn) -> Array:
    """Return the seconds that each call of a turn waited for a core."""
    times = turn.times
    return call_waits(times["start"], times["end"], times["wait"], times["at"])


def undisturbed(turn: Turn, clocks: Mapping[SideName, Clocks]) -> Array:
    """Return the seconds of each call of a turn, by the least disturbed clock of both sides."""
    if all(clock.device for clock in clocks.values()):
        return np.asarray(turn.times["device"])
    if all(clock.wait for clock in clocks.values()):
        return np.asarray(durations(turn) - waits(turn))
    return durations(turn)


def seconds_of(turn: Turn, clocks: Mapping[SideName, Clocks]) -> float:
    """Return the median seconds of a turn's calls, by the least disturbed clock of both sides."""
    return float(np.median(undisturbed(turn, clocks)))


def ratios_of(turns: Mapping[SideName, Sequence[Turn]], clocks: Mapping[SideName, Clocks]) -> Array:
    """Return the logs of B / A of pairs of turns; a clock that stood still tells nothing."""
    calls = (np.array([undisturbed(turn, clocks) for turn in turns[side]]) for side in SIDES)
    a, b = seconds_of_turns(*calls)
    told = (a > 0) & (b > 0)
    if not told.any():
        return np.zeros(1)
    return np.asarray(np.log(b[told] / a[told]))


class TurnWatch:
    """Tells when a round of a plan has enough turns, of so many ``calls`` over ``batches``."""

    def __init__(self, plan: InterleavePlan, calls: int, batches: int = 1) -> None:
        self._plan = plan
        self._calls = calls
        self._look = next_look(0, calls, batches)

    def is_enough(self, pairs: int, spent: float, error: Callable[[], float]) -> bool:
        """Return whether so many pairs of turns are enough, which took the seconds ``spent``.

        ``error`` returns that of the change of latency, and is called only at a look at it.
        """
        plan = self._plan
        if pairs >= _MOST_PAIRS or plan.is_measured(pairs, self._calls, spent):
            return True
        if not plan.precision or spent <= LEAST_SECONDS or pairs < self._look:
            return False
        self._look = next_look(pairs, self._calls)
        return error() <= plan.precision
