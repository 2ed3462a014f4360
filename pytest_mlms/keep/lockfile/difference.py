"""Differences between two locks, or between a lock and a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_mlms.keep.lockfile.facts import Facts, answers_of, files_of, software_facts
from pytest_mlms.keep.lockfile.lock import Lock, LockedItem
from pytest_mlms.keep.lockfile.stack_keys import stack_name
from pytest_mlms.keep.lockfile.timing import TOLERANCE, is_noise


@dataclass(frozen=True)
class Change:
    """A fact that changed, with both values as text: "" where there is none."""

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class StackChange:
    """The change of a stack's software, once for all items that have it.

    ``changes`` are those of Python and of packages.
    """

    stack: str
    changes: tuple[Change, ...]
    items: tuple[str, ...]


@dataclass(frozen=True)
class ItemChange:
    """The changes of an item beside its software."""

    item: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class TimingChange:
    """A timing that changed by more than the noise."""

    machine: str
    item: str
    change: Change


@dataclass(frozen=True)
class LockDifference:
    """All that is different, sorted; ``added`` and ``removed`` are items."""

    stacks: tuple[StackChange, ...] = ()
    items: tuple[ItemChange, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    timings: tuple[TimingChange, ...] = ()

    @property
    def has_changes(self) -> bool:
        """True if anything but a timing changed in items that both have."""
        return bool(self.stacks or self.items)

    @property
    def differing(self) -> set[str]:
        """The items that both have, of which something changed that isn't a timing."""
        items = {change.item for change in self.items}
        for stack in self.stacks:
            items.update(stack.items)
        return items


def difference_of(old: Lock, new: Lock, tolerance: float = TOLERANCE) -> LockDifference:
    """Return how ``new`` differs from ``old``.

    ``tolerance`` is a share: timings are told where they left their interval by more.
    """
    before = old.items.keys()
    now = new.items.keys()
    common = sorted(before & now)
    added = sorted(now - before)
    removed = sorted(before - now)
    return LockDifference(
        stacks=tuple(_stack_changes(old, new, common)),
        items=tuple(_item_changes(old, new, common)),
        added=tuple(added),
        removed=tuple(removed),
        timings=tuple(_timing_changes(old, new, tolerance)),
    )


def _changes(before: Facts, now: Facts) -> tuple[Change, ...]:
    """Return the facts that differ, in the order of both."""
    changes = []
    names = dict.fromkeys([*before, *now])
    for name in names:
        old = before.get(name, "")
        new = now.get(name, "")
        if old != new:
            change = Change(name, old, new)
            changes.append(change)
    return tuple(changes)


def _stack_changes(old: Lock, new: Lock, common: Sequence[str]) -> Iterator[StackChange]:
    """Yield the change of each pair of stacks that items have."""
    by_pair: dict[tuple[str, str], list[str]] = {}
    for nodeid in common:
        first = old.items[nodeid].stack
        second = new.items[nodeid].stack
        nodeids = by_pair.setdefault((first, second), [])
        nodeids.append(nodeid)
    for (first, second), nodeids in by_pair.items():
        before = software_facts(first, old.stacks[first])
        now = software_facts(second, new.stacks[second])
        changes = _changes(before, now)
        if changes:
            yield StackChange(stack_name(second), changes, tuple(nodeids))


def _item_changes(old: Lock, new: Lock, common: Sequence[str]) -> Iterator[ItemChange]:
    for nodeid in common:
        before = old.items[nodeid]
        now = new.items[nodeid]
        files = _changes(files_of(before), files_of(now))
        answers = _answer_changes(before, now)
        changes = (*files, *answers)
        if changes:
            yield ItemChange(nodeid, changes)


def _answer_changes(old: LockedItem, new: LockedItem) -> Iterator[Change]:
    """Yield the changes of what both know: a run may not have traced, or be an older one."""
    for change in _changes(answers_of(old), answers_of(new)):
        if change.old and change.new:
            yield change


def _timing_changes(old: Lock, new: Lock, tolerance: float) -> Iterator[TimingChange]:
    for machine in sorted(old.timings.keys() & new.timings.keys()):
        before = old.timings[machine]
        now = new.timings[machine]
        for nodeid in sorted(before.keys() & now.keys()):
            changes = _changes(before[nodeid], now[nodeid])
            for change in changes:
                if _is_news(change, tolerance):
                    yield TimingChange(machine, nodeid, change)


def _is_news(timing: Change, tolerance: float) -> bool:
    """Return whether both have the timing, and it changed by more than the noise."""
    if not timing.old or not timing.new:
        return False
    return not is_noise(timing.old, timing.new, tolerance)
