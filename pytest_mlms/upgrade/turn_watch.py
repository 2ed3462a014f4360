"""The error of a round's latency while its turns run, to end them once it is small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pytest_mlms.agent.predictor import Clocks, Turn
from pytest_mlms.evaluate.contention import call_waits
from pytest_mlms.upgrade.figures import centre_of
from pytest_mlms.upgrade.interleave_plan import next_look
from pytest_mlms.upgrade.rounds import SIDES, Array, SideName

__all__ = ["TurnWatch", "durations", "seconds_of", "undisturbed", "waits"]


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


class TurnWatch:
    """Watches the turns of a round; ``needed`` is the error at which they may end, 0 for never.

    A turn has so many ``calls``, over so many ``batches`` in turn.
    """

    def __init__(
        self, needed: float, clocks: Mapping[SideName, Clocks], calls: int, batches: int
    ) -> None:
        self._needed = needed
        self._clocks = clocks
        self._calls = calls
        self._look = next_look(0, calls, batches)

    def is_precise(self, turns: Mapping[SideName, Sequence[Turn]]) -> bool:
        """Return whether the turns so far show the change of latency well enough."""
        pairs = len(turns["a"])
        if not self._needed or pairs < self._look:
            return False
        self._look = next_look(pairs, self._calls)
        _, error = centre_of(self._ratios(turns))
        return error <= self._needed

    def change(self, turns: Mapping[SideName, Sequence[Turn]]) -> float:
        """Return the median of the logs of B / A over pairs of turns."""
        return float(np.median(self._ratios(turns)))

    def _ratios(self, turns: Mapping[SideName, Sequence[Turn]]) -> Array:
        """Return the logs of B / A of pairs of turns; a clock that stood still tells nothing."""
        a, b = (self._seconds(turns[side]) for side in SIDES)
        told = (a > 0) & (b > 0)
        if not told.any():
            return np.zeros(1)
        return np.asarray(np.log(b[told] / a[told]))

    def _seconds(self, turns: Sequence[Turn]) -> Array:
        return np.array([seconds_of(turn, self._clocks) for turn in turns])
