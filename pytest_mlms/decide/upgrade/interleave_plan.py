"""Parameters of an interleaved run of two stacks, and the end of the turns of its rounds.

Turns end after their time, or once the error of the latency of their round is small.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from pytest_mlms.core.statistics import samples_for_percentile
from pytest_mlms.decide.upgrade.figures import seconds_of_turns
from pytest_mlms.decide.upgrade.round_estimate import ROUNDS, ROUNDS_TO_FAIL, RoundSpan
from pytest_mlms.decide.upgrade.round_load import LoadStrategy, PeakSearches, SameQueries
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, SideName
from pytest_mlms.manifest.scenarios import Peak
from pytest_mlms.measure.agent.predictor import Clocks, Turn
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.steadiness import call_waits

LEAST_CALLS = 30
"""Calls of a round, which p90 needs."""

LEAST_SECONDS = 0.08
"""Seconds of a round's turns, so that there are some hundred short calls, a few of which stall."""

_LEAST_PAIRS = 12
_LEAST_PAIRS_SOON = 8  # where turns end before their seconds; six have an interval by ranks
_LEAST_PAIRS_SLOW = 3  # of a slow model
_SHARE_OF_SPREAD = 3  # of the deviation between rounds, for the error of one
_TIMES_THE_BASELINE = 2  # slow calls, from which B seems to have more
_LOADS = 3 * ROUNDS_TO_FAIL  # both sides' take two thirds of the budget


@dataclass(frozen=True)
class InterleavePlan:
    """Parameters of an interleaved run.

    ``seconds`` is the time that the turns of a round take, ``budget`` that of the whole run.
    ``cores`` may be used, ``threads`` of them by a side (None: all). ``seed`` draws the order of
    everything, and the cores of each round. ``load`` is put on both sides after their turns.
    ``watches_growth`` is whether each round watches the growth of memory, ``watches_late`` whether
    each has late calls.
    ``rounds`` are how many there are. A round's turns end before their seconds where the error of
    its latency is at most ``precision``, a share; 0 is never. It has at least ``least_calls``, and
    all batches where it ``covers_batches``, if there is time. With ``fills_caches`` a pair of
    processes that doesn't count comes first. A call has ``batch_size`` inputs.
    """

    seconds: float
    budget: float
    seed: int
    cores: Sequence[int] = ()
    threads: int | None = None
    load: LoadItemPlan | None = None
    watches_growth: bool = False
    watches_late: bool = False
    rounds: RoundSpan = ROUNDS
    precision: float = 0.0
    least_calls: int = LEAST_CALLS
    covers_batches: bool = False
    fills_caches: bool = False
    batch_size: int = 1

    def under_load(self, load: LoadItemPlan) -> InterleavePlan:
        """Return the plan with a load in each round; instances may use all cores.

        Raises MlmsError where a side's share of the budget can't have the queries that the
        percentile takes. For a peak this is known when calls have been timed.
        """
        load = replace(load, processes=_LOADS)
        load.check()
        return replace(self, threads=None, load=load, precision=0.0)

    def load_strategy(self) -> LoadStrategy | None:
        """Return what puts the load on each round; None where there is none."""
        if self.load is None:
            return None
        if isinstance(self.load.load, Peak):
            return PeakSearches(self.load, seconds=2 * self.load.longest)
        return SameQueries(self.load)

    @property
    def longest_turns(self) -> float:
        """Seconds that the turns of a round may take: half of its share of the budget."""
        return self.budget / self.rounds.to_fail / 2

    def draw_cores(self, rng: random.Random) -> list[int]:
        """Return the cores of a round, in ascending order."""
        count = len(self.cores)
        if self.threads:
            count = min(self.threads, count)
        return sorted(rng.sample(list(self.cores), count))

    def is_measured(self, pairs: int, calls: int, spent: float) -> bool:
        """Return whether a round has enough: pairs of turns of so many calls, and seconds."""
        if spent >= self.longest_turns:
            return pairs >= _LEAST_PAIRS_SLOW
        least = max(_LEAST_PAIRS, math.ceil(self.least_calls / calls))
        return spent >= self.seconds and pairs >= least

    def for_round(
        self,
        changes: Sequence[float],
        for_guards: bool = False,
        slow_calls: Sequence[tuple[int, int]] = (),
        call_seconds: Sequence[float] = (),
    ) -> InterleavePlan:
        """Return the plan of the round that comes after those with these ``changes`` of latency.

        Rounds that any item has are half as long, as there are so many of them. Beside what differs
        between rounds, an error of a third of that doesn't matter. Further ones ``for_guards`` last
        their whole time, since rare calls decide most of these, and so do those after B had more
        ``slow_calls`` than A: they have the calls that p95 needs, if there is the time for so many
        calls of both sides, which took ``call_seconds`` in the median of these rounds.
        """
        if not self.precision:
            return self
        is_further = len(changes) >= self.rounds.least
        seconds = self.seconds if is_further else self.seconds / 2
        least = max(self.least_calls, samples_for_percentile(95))
        has_time = least * median(call_seconds or [0.0]) <= self.longest_turns
        if (for_guards and is_further) or (has_time and _has_more(slow_calls)):
            calls = least if has_time else self.least_calls
            return replace(self, seconds=seconds, precision=0.0, least_calls=calls)
        needed = self.precision
        if len(changes) > 2:
            needed = max(needed, float(np.std(changes, ddof=1)) / _SHARE_OF_SPREAD)
        return replace(self, seconds=seconds, precision=needed)


def _has_more(slow_calls: Sequence[tuple[int, int]]) -> bool:
    """Return whether B seems to have more slow calls; that chance has it so costs time alone."""
    a, b = (sum(each[side] for each in slow_calls) for side in (0, 1))
    return b > max(1, _TIMES_THE_BASELINE * a)


def next_look(pairs: int, calls: int, batches: int = 1) -> int:
    """Return after how many pairs to look at their error again, in turns of so many calls.

    All ``batches`` have been timed by then.
    """
    least = max(_LEAST_PAIRS_SOON, math.ceil(batches / calls))
    return max(least, math.ceil(1.25 * pairs))


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
