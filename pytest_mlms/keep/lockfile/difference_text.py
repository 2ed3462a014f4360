"""Differences of locks as the lines of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_mlms.keep.lockfile.difference import Change, LockDifference

_SHOWN_ITEMS = 3
_NONE = "none"


def difference_lines(
    difference: LockDifference, added: str = "added", removed: str = "removed"
) -> Iterator[str]:
    """Yield the lines of what changed: software first, then items, then what is new or gone.

    ``added`` and ``removed`` are the words for items that only one side has.
    """
    for stack in difference.stacks:
        items = _items_text(stack.items)
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


def _items_text(items: Sequence[str]) -> str:
    if len(items) == 1:
        return items[0]
    return f"{len(items)} items"


def _item_lines(title: str, items: Sequence[str]) -> Iterator[str]:
    """Yield a line for each of the first items, and one for the rest."""
    for item in items[:_SHOWN_ITEMS]:
        yield f"{title}: {item}"
    rest = len(items) - _SHOWN_ITEMS
    if rest > 0:
        yield f"{title}: {rest} more"
