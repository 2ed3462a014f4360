"""Waits that a person is told of, file locks that name their holder, and Ctrl-C that stays.

Python drops a Ctrl-C in a callback of the garbage collector or of a weak reference. Each import of
a module has such a callback."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
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


LOCK_MODE = 0o666
"""The mode of a cache's lock files, for all users of its folder, whatever the umask."""

Waiting = Callable[[Callable[[], str]], AbstractContextManager[None]]
"""Returns a context to wait in; the function returns what is waited for, as it is by then."""

_ARGUMENTS = 4  # of the holder's command line, as it is shown
_LOCKS = Path("/proc/locks")


def in_silence(subject: Callable[[], str]) -> AbstractContextManager[None]:
    """Tell nobody of a wait."""
    return contextlib.nullcontext()


@contextlib.contextmanager
def hold_lock(path: Path, waiting: Waiting = in_silence) -> Iterator[None]:
    """Hold the file lock ``path``, waiting for it.

    ``waiting`` is entered where another process holds it, with the text of that process. Raises
    OSError where the folder can't be written.
    """
    import filelock

    lock = filelock.FileLock(path, mode=LOCK_MODE)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        with waiting(lambda: holder_of(path)):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def holder_of(path: Path) -> str:
    """Return the process that holds the file lock ``path``, as far as the kernel tells.

    Nothing is written down for this: whoever may write such a note may also write a wrong one.
    Linux has the table; elsewhere, and where the file system numbers its files otherwise (btrfs),
    it is "another process".
    """
    import psutil

    with contextlib.suppress(OSError, ValueError, psutil.Error):
        number = _holder_number(path)
        if number:
            return _describe(number)
    return "another process"


def _holder_number(path: Path) -> int | None:
    """Return the number of the process whose flock is on the file; see proc_locks(5)."""
    status = path.stat()
    major = os.major(status.st_dev)
    minor = os.minor(status.st_dev)
    file = f"{major:02x}:{minor:02x}:{status.st_ino}"
    for line in _LOCKS.read_text().splitlines():
        _, kind, _, _, number, locked, *_ = line.split()
        if kind == "FLOCK" and locked == file:
            return int(number)
    return None


def _describe(number: int) -> str:
    """Return a process with its command, without secrets and what would control a terminal.

    A command of another user is theirs, and texts with it become part of results.
    """
    import psutil

    from pytest_mlms.core.text import redact

    process = psutil.Process(number)
    if process.uids().real != os.getuid():
        return f"process {number} of another user"
    command = redact(" ".join(process.cmdline()[:_ARGUMENTS]))
    shown = "".join(character if character.isprintable() else "?" for character in command)
    return f"process {number} ({shown})"
