"""Differences between two locks, or between a lock and a run, and their lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_mlms.keep.lockfile.lock import (
    TOLERANCE,
    Lock,
    LockedItem,
    LockedStack,
    is_noise,
    stack_name,
)
from pytest_mlms.provide.stacks.exact_packages import parse_package

_Facts = dict[str, str]


def _software_facts(key: str, software: LockedStack) -> _Facts:
    """Return the name of a stack, its Python, and the version of each package.

    A package that is from no index has its origin, too, and a container the id of its image.
    Variables of the caller are "$NAME".
    """
    facts = {"stack": stack_name(key), "Python": software.python}
    for line in software.packages:
        package = parse_package(line)
        if package is None:
            image, _, identity = line.partition(" @ ")
            facts[image] = identity
        elif package.origin:
            described = f"{package.version} from {package.origin}"
            facts[package.key] = described.lstrip()
        else:
            facts[package.key] = package.version
    for text in software.variables:
        name, _, value = text.partition("=")
        facts[f"${name}"] = value
    return facts


def _files_of(item: LockedItem) -> _Facts:
    """Return the digests of an item's model and dataset."""
    files = [f"{role} {digest}" for role, digest in item.model.items()]
    model = ", ".join(sorted(files))
    facts = {"model": model}
    if item.dataset is not None:
        facts["dataset"] = item.dataset
    return facts


def _answers_of(item: LockedItem) -> _Facts:
    """Return what an item measures and its answers, as far as they are known."""
    facts = {"what it measures": item.definition} if item.definition else {}
    if item.right is not None:
        facts["right answers"] = f"{item.right} of {item.inputs}"
    if item.predictions is not None:
        facts["predictions"] = item.predictions
    if item.layers is not None:
        facts["layers"] = item.layers
    for name, value in item.accuracy.items():
        facts[name] = f"{value:g}"
    return facts


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


def _changes(before: _Facts, now: _Facts) -> tuple[Change, ...]:
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
        before = _software_facts(first, old.stacks[first])
        now = _software_facts(second, new.stacks[second])
        changes = _changes(before, now)
        if changes:
            yield StackChange(stack_name(second), changes, tuple(nodeids))


def _item_changes(old: Lock, new: Lock, common: Sequence[str]) -> Iterator[ItemChange]:
    for nodeid in common:
        before = old.items[nodeid]
        now = new.items[nodeid]
        files = _changes(_files_of(before), _files_of(now))
        answers = _answer_changes(before, now)
        changes = (*files, *answers)
        if changes:
            yield ItemChange(nodeid, changes)


def _answer_changes(old: LockedItem, new: LockedItem) -> Iterator[Change]:
    """Yield the changes of what both know: a run may not have traced, or be an older one."""
    for change in _changes(_answers_of(old), _answers_of(new)):
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


_SHOWN_ITEMS = 3
_NONE = "none"


def difference_lines(
    difference: LockDifference, added: str = "added", removed: str = "removed"
) -> Iterator[str]:
    """Yield the lines of what changed: software first, then items, then what is new or gone.

    ``added`` and ``removed`` are the words for items that only one side has.
    """
    for stack in difference.stacks:
        items = stack.items[0] if len(stack.items) == 1 else f"{len(stack.items)} items"
        yield f"{stack.stack}, {items}:"
        yield from _change_lines(stack.changes, indent=2)
    for item in difference.items:
        yield f"{item.item}:"
        yield from _change_lines(item.changes, indent=2)
    yield from _item_lines(added, difference.added)
    yield from _item_lines(removed, difference.removed)


def timing_lines(difference: LockDifference) -> Iterator[str]:
    """Yield the lines of the timings that changed, by machine."""
    machine = ""
    for timing in difference.timings:
        if timing.machine != machine:
            machine = timing.machine
            yield f"timings on {machine} (advisory):"
        yield f"  {timing.item}"
        yield from _change_lines([timing.change], indent=4)


def _change_lines(changes: Sequence[Change], indent: int) -> Iterator[str]:
    names = [change.name for change in changes]
    width = max(map(len, names))
    margin = " " * indent
    for change in changes:
        name = change.name.ljust(width)
        old = change.old or _NONE
        new = change.new or _NONE
        yield f"{margin}{name}  {old} -> {new}"


def _item_lines(title: str, items: Sequence[str]) -> Iterator[str]:
    """Yield a line for each of the first items, and one for the rest."""
    for item in items[:_SHOWN_ITEMS]:
        yield f"{title}: {item}"
    rest = len(items) - _SHOWN_ITEMS
    if rest > 0:
        yield f"{title}: {rest} more"
