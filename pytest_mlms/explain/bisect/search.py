"""The search for the release that made it worse: a pure function of a judge.

Releases are numbers here, 0 the good one. The judge measures; nothing is measured in this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

Purpose = Literal["ends", "packages", "search", "neighbours"]
"""The part of a bisection that a pair of stacks is judged for."""

AnswerKind = Literal["found", "range", "gradual", "same"]
"""The answer of a search.

found: the release is known. range: it is one of several. gradual: no release makes the difference
alone. same: the ends are not shown to differ.
"""

_MORE_THAN_THE_LOGARITHM = 4
"""Probes beside those of a search by halves: both ends, both neighbours, and two to spare.

The spare ones are for releases that are judged again, or replaced by others.
"""


class Outcome(str, Enum):
    """The outcome of judging a release against an earlier one.

    UNDECIDED is also that of a release that crashes where speed is asked for. UNAVAILABLE is that
    of one that can't be installed.
    """

    GOOD = "good"
    BAD = "bad"
    UNDECIDED = "undecided"
    UNAVAILABLE = "not installable"


class Pair(NamedTuple):
    """Two releases to judge, the earlier one first; ``effort`` multiplies the budget.

    ``neighbours`` are judged on data of their own, which no earlier judgement has used.
    """

    before: int
    after: int
    purpose: Purpose
    effort: int


Judge = Callable[[Pair], Outcome]


@dataclass(frozen=True)
class Answer:
    """The result of a search: the last release before the change, and the first one after it.

    Attributes:
        kind: The kind of the answer.
        before: The last release that is good, or the good end.
        after: The first release that is bad, or the bad end.
        probes: The number of judgements that were made.
        judged: The outcome of the last judgement, of the ends or the neighbours.
        spent: Whether releases were left out, or not judged again, because all probes were used.
    """

    kind: AnswerKind
    before: int
    after: int
    probes: int
    judged: Outcome
    spent: bool = False


def most_probes(count: int) -> int:
    """Return the most probes for this number of releases: their logarithm to base 2, and 4."""
    return int(math.log2(count)) + _MORE_THAN_THE_LOGARITHM


def search(count: int, judge: Judge, limit: int) -> Answer:
    """Find the first of ``count`` releases that is bad where the one before it is good.

    The ends are judged first. Then the release in the middle is judged against the good end until
    no release is left between the last good one and the first bad one. At last these neighbours are
    judged against each other: an answer rests on this one judgement of fresh data, so the risk to
    accuse a wrong release is that of one judgement, however many were made before. It is therefore
    never repeated.

    A release that stays undecided is replaced by the one that is next to the middle, and judged
    again only if no other is left. ``limit`` is the most judgements to make, these second ones
    included; releases that can't be installed don't count.
    """
    last = count - 1
    state = _Search(judge, limit, low=0, high=last)
    both = Pair(0, last, "ends", effort=1)
    ends = state.ask_twice(both)
    if ends is not Outcome.BAD:
        return Answer("same", 0, last, state.probes, ends)
    state.narrow()
    neighbours = Pair(state.low, state.high, "neighbours", effort=2)
    judged = state.ask(neighbours)
    distance = state.high - state.low
    kind = _kind_of(judged, is_one=distance == 1)
    spent = state.middle() is not None
    return Answer(kind, state.low, state.high, state.probes, judged, spent)


def _kind_of(judged: Outcome, is_one: bool) -> AnswerKind:
    if judged is Outcome.GOOD:
        return "gradual"
    if judged is Outcome.BAD and is_one:
        return "found"
    return "range"


class _Search:
    """The state of a search: the last good release ``low``, the first bad one ``high``."""

    def __init__(self, judge: Judge, limit: int, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self.probes = 0
        self._judge = judge
        self._limit = limit
        self._undecided: set[int] = set()  # judged once
        self._left_out: set[int] = set()

    def ask(self, pair: Pair) -> Outcome:
        """Judge a pair once."""
        outcome = self._judge(pair)
        if outcome is not Outcome.UNAVAILABLE:
            self.probes += 1
        return outcome

    def ask_twice(self, pair: Pair) -> Outcome:
        """Judge a pair; where that stays undecided and a probe is left, with twice the budget."""
        outcome = self.ask(pair)
        if outcome is Outcome.UNDECIDED and self._has_probe():
            again = pair._replace(effort=2 * pair.effort)
            return self.ask(again)
        return outcome

    def narrow(self) -> None:
        """Judge releases between ``low`` and ``high`` until none is left, or no probe is."""
        while self._has_probe():
            middle = self.middle()
            if middle is None:
                return
            is_again = middle in self._undecided
            pair = Pair(0, middle, "search", effort=2 if is_again else 1)
            outcome = self.ask(pair)
            if outcome is Outcome.GOOD:
                self.low = middle
            elif outcome is Outcome.BAD:
                self.high = middle
            elif outcome is Outcome.UNDECIDED and not is_again:
                self._undecided.add(middle)
            else:
                self._left_out.add(middle)

    def _has_probe(self) -> bool:
        """Return whether a probe is left beside that of the neighbours."""
        return self._limit - self.probes > 1

    def middle(self) -> int | None:
        """Return the release to judge next, the nearest to the middle; None where none is left.

        Those that were undecided are the last ones.
        """
        middle = (self.low + self.high) / 2

        def order(release: int) -> tuple[bool, float]:
            return release in self._undecided, abs(release - middle)

        between = range(self.low + 1, self.high)
        candidates = [release for release in between if release not in self._left_out]
        return min(candidates, key=order, default=None)
