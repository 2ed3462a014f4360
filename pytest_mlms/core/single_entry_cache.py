"""A cache that keeps the last value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

Value = TypeVar("Value")


def _always(value: object) -> bool:
    return True


class SingleEntryCache(Generic[Value]):
    """Keeps the last value, or the value of the last open context, until another is asked for.

    A value that is no longer usable is made again.
    """

    def __init__(self, is_usable: Callable[[Value], bool] = _always) -> None:
        self._is_usable = is_usable
        self._entries: dict[Hashable, Value] = {}  # one at most
        self._context = contextlib.ExitStack()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value kept for ``key``; otherwise keep the one that ``make`` returns."""
        return self.open(key, lambda: contextlib.nullcontext(make()))

    def open(self, key: Hashable, make: Callable[[], AbstractContextManager[Value]]) -> Value:
        """Return the value that is kept for ``key``.

        Otherwise close the context that is kept, and open the one that ``make`` returns.
        """
        if key in self._entries and self._is_usable(self._entries[key]):
            return self._entries[key]
        self.close()
        value = self._context.enter_context(make())
        self._entries[key] = value
        return value

    def close(self) -> None:
        """Forget the value, and close its context."""
        self._entries.clear()
        self._context.close()
