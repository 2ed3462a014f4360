"""The items that are not ours, scheduled by xdist's own scheduler, which sees workers that have
nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.workers import WorkerState

__all__ = ["DelegatedItems"]


class _Stand:
    """A worker as xdist's scheduler sees it: its indices are of the items that are not ours."""

    def __init__(self, seat: WorkerState, items: ItemTable) -> None:
        self.gateway = seat.node.gateway
        self.seat = seat
        self._items = items

    @property
    def shutting_down(self) -> bool:
        return bool(self.seat.node.shutting_down)

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        real = [self._items.others[index] for index in indices]
        self.seat.sent += real
        self.seat.node.send_runtest_some(real)

    def send_steal(self, indices: Sequence[int]) -> None:
        self.seat.steals.append(None)
        self.seat.node.send_steal([self._items.others[index] for index in indices])

    def shutdown(self) -> None:
        """No more for now: the last one needs something behind it to start."""
        self.seat.node.send_runtest_some([len(self._items.ids)])


class DelegatedItems:
    """xdist's scheduler ``inner``, from the moment that all workers have collected."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._items: ItemTable | None = None
        self._stands: dict[Any, _Stand] = {}
        self._places: dict[int, int] = {}

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do here."""
        return self._items is not None and bool(self._inner.tests_finished)

    @property
    def has_pending(self) -> bool:
        """Whether items wait that no worker has."""
        return self._items is not None and bool(self._inner.has_pending)

    def begin(self, items: ItemTable, ready: list[WorkerState]) -> None:
        """Take in the workers that are new, also those that it had no use for at first, and
        schedule.
        """
        taken = self._inner.nodes
        new = [seat for seat in ready if self._stands.get(seat.node) not in taken]
        if not new:
            return
        if self._items is None:
            self._items = items
            self._places = {index: place for place, index in enumerate(items.others)}
            self._inner.numnodes = len(new)
        for seat in new:
            stand = self._stands[seat.node] = _Stand(seat, items)
            self._inner.add_node(stand)
            self._inner.add_node_collection(stand, [items.ids[index] for index in items.others])
        self._inner.schedule()

    def complete(self, node: Any, index: int, duration: float) -> None:
        """An item has run."""
        self._inner.mark_test_complete(self._stands[node], self._places[index], duration)

    def unscheduled(self, node: Any, indices: Sequence[int]) -> None:
        """ItemTable were stolen back."""
        self._inner.remove_pending_tests_from_node(
            self._stands[node], [self._places[index] for index in indices]
        )

    def again(self, item: str) -> None:
        """An item waits again."""
        self._inner.mark_test_pending(item)

    def remove(self, node: Any, running: int | None) -> str | None:
        """A worker is gone; return the item of these that it ran."""
        stand = self._stands.pop(node, None)
        if stand is None or stand not in self._inner.nodes:
            return None
        crashed: str | None = self._inner.remove_node(stand)
        if (
            crashed is not None and running not in self._places
        ):  # it ran one of ours, this one only waited
            with contextlib.suppress(
                NotImplementedError
            ):  # those by scope have put it back themselves
                self._inner.mark_test_pending(crashed)
            return None
        return crashed
