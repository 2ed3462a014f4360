"""Ctrl-C where Python would drop it: in a callback of the garbage collector or of a weak reference.

Each import of a module has such a callback, so that a Ctrl-C meanwhile may be lost.
"""

from __future__ import annotations

import _thread
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["interrupts_kept"]


_RETURNED = 0.05  # seconds until the callback and the hook have returned, or else it is kept again


def _interrupt_soon() -> None:
    time.sleep(_RETURNED)
    _thread.interrupt_main()


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Raise a KeyboardInterrupt that was raised in a callback once that has returned."""
    former = sys.unraisablehook

    def keep(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            _thread.start_new_thread(_interrupt_soon, ())
        else:
            former(unraisable)

    sys.unraisablehook = keep
    try:
        yield
    finally:
        if sys.unraisablehook is keep:
            sys.unraisablehook = former
