"""Ctrl-C where Python would drop it: in a callback of the garbage collector or of a weak reference.

Each import of a module has such a callback, so that a Ctrl-C meanwhile may be lost.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

_RETURNED = 0.05  # seconds until the callback and the hook have returned, or else it is kept again


def _interrupt_soon() -> None:
    time.sleep(_RETURNED)
    main = threading.main_thread().ident
    assert main is not None, "the main thread runs"
    signal.pthread_kill(main, signal.SIGINT)  # wakes it where it waits


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Raise a KeyboardInterrupt that was raised in a callback once that has returned.

    It is raised within the context, or at its end.
    """
    former = sys.unraisablehook
    raising = []

    def keep(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            thread = threading.Thread(target=_interrupt_soon)
            raising.append(thread)
            thread.start()
        else:
            former(unraisable)

    sys.unraisablehook = keep
    try:
        yield
    finally:
        if sys.unraisablehook is keep:
            sys.unraisablehook = former
        for thread in raising:
            thread.join()
