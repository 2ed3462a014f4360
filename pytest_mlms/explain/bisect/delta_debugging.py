"""The smallest set of changes that makes it worse: delta debugging, a pure function of a test.

The algorithm is ddmin of Zeller and Hildebrandt 2002, "Simplifying and Isolating Failure-Inducing
Input", IEEE Transactions on Software Engineering 28(2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pytest_mlms.explain.bisect.search import Outcome

Changes = tuple[int, ...]
"""Numbers of changes, in ascending order."""

Test = Callable[[Changes], Outcome]
"""Judges the good stack with some changes against the good stack."""


class Reduction(NamedTuple):
    """Changes that are bad together.

    It is ``minimal`` where each of them was shown to be needed: without it the others are good.
    """

    changes: Changes
    minimal: bool


def reduce_changes(count: int, test: Test) -> Reduction:
    """Return the fewest of ``count`` changes that are bad together.

    All changes together must be bad, and none of them good; neither is tested. A set of changes is
    tested once. What stays undecided or can't be installed is taken as not bad, as in the paper.
    """
    memory = _Memory(test)
    changes = tuple(range(count))
    parts = 2
    while len(changes) > 1:
        part = _bad_part(changes, parts, memory)
        rest = None if part else _bad_rest(changes, parts, memory)
        if part:
            changes = part
            parts = 2
        elif rest:
            changes = rest
            parts = max(parts - 1, 2)
        elif parts < len(changes):
            parts = min(2 * parts, len(changes))
        else:
            break
    minimal = all(map(memory.is_good, _without_one(changes)))
    return Reduction(changes, minimal)


class _Memory:
    """The outcomes of sets that were tested."""

    def __init__(self, test: Test) -> None:
        self._test = test
        self._outcomes: dict[Changes, Outcome] = {(): Outcome.GOOD}

    def is_bad(self, changes: Changes) -> bool:
        """Test a set of changes, unless it was tested before."""
        if changes not in self._outcomes:
            self._outcomes[changes] = self._test(changes)
        return self._outcomes[changes] is Outcome.BAD

    def is_good(self, changes: Changes) -> bool:
        """Return whether a set was tested and is good."""
        return self._outcomes.get(changes) is Outcome.GOOD


def _bad_part(changes: Changes, parts: int, memory: _Memory) -> Changes | None:
    """Return the first part of the changes that is bad; None where none is."""
    for part in _divided(changes, parts):
        if memory.is_bad(part):
            return part
    return None


def _bad_rest(changes: Changes, parts: int, memory: _Memory) -> Changes | None:
    """Return the changes without one part that are bad all the same; None where none are."""
    for part in _divided(changes, parts):
        rest = _without(changes, part)
        if memory.is_bad(rest):
            return rest
    return None


def _without(changes: Changes, part: Changes) -> Changes:
    left = []
    for change in changes:
        if change not in part:
            left.append(change)
    return tuple(left)


def _divided(changes: Sequence[int], parts: int) -> Iterator[Changes]:
    """Yield the changes in this many parts, of sizes that differ by one at most."""
    begin = 0
    for parts_left in range(parts, 0, -1):
        changes_left = len(changes) - begin
        end = begin + changes_left // parts_left
        part = changes[begin:end]
        yield tuple(part)
        begin = end


def _without_one(changes: Changes) -> Iterator[Changes]:
    for change in changes:
        yield _without(changes, (change,))
