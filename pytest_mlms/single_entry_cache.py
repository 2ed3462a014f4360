"""A cache that keeps the last value."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

__all__ = ["SingleEntryCache"]

Value = TypeVar("Value")


class SingleEntryCache(Generic[Value]):
    """Keeps the last value, or the value of the last open context, until another is asked for."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, Value] = {}  # one at most
        self._context = contextlib.ExitStack()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value kept for ``key``; otherwise keep the one that ``make`` returns."""
        return self.open(key, lambda: contextlib.nullcontext(make()))

    def open(self, key: Hashable, make: Callable[[], AbstractContextManager[Value]]) -> Value:
        """Return the value that is kept for ``key``.

        Otherwise close the context that is kept, and open the one that ``make`` returns.
        """
        if key not in self._entries:
            self.close()
            self._entries[key] = self._context.enter_context(make())
        return self._entries[key]

    def close(self) -> None:
        """Forget the value, and close its context."""
        self._entries.clear()
        self._context.close()
