"""A cache that keeps one open context."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

__all__ = ["SingleEntryCache"]

Value = TypeVar("Value")


class SingleEntryCache(Generic[Value]):
    """Keeps the context that was opened last, until another one is asked for."""

    def __init__(self) -> None:
        self._entries: dict[Hashable, Value] = {}  # one at most
        self._context = contextlib.ExitStack()

    def get(self, key: Hashable, make: Callable[[], AbstractContextManager[Value]]) -> Value:
        """Return the value that is kept for ``key``.

        Where it is kept for another key, closes that one and opens the context that ``make``
        returns.
        """
        if key not in self._entries:
            self.close()
            self._entries[key] = self._context.enter_context(make())
        return self._entries[key]

    def close(self) -> None:
        """Close the context that is kept, if any."""
        self._entries.clear()
        self._context.close()
