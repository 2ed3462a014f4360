"""Waits that a person is told of, and file locks that name their holder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

__all__ = ["Waiting", "hold_lock", "holder_of", "in_silence"]

Waiting = Callable[[Callable[[], str]], AbstractContextManager[None]]
"""Returns a context to wait in; the function returns what is waited for, as it is by then."""

_ARGUMENTS = 4  # of the holder's command line, as it is shown


def in_silence(subject: Callable[[], str]) -> AbstractContextManager[None]:
    """Tell nobody of a wait."""
    return contextlib.nullcontext()


@contextlib.contextmanager
def hold_lock(
    path: Path, waiting: Waiting = in_silence, timeout: float = -1, mode: int = 0o644
) -> Iterator[None]:
    """Hold the file lock ``path``, waiting up to ``timeout`` seconds for it (-1: for ever).

    ``waiting`` is entered where another process holds it, with the text of that process. Raises
    filelock.Timeout, and OSError where the folder can't be written.
    """
    import filelock

    lock = filelock.FileLock(path, mode=mode)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        with waiting(lambda: holder_of(path)):
            lock.acquire(timeout=timeout)
    try:
        _write_holder(path)
        yield
    finally:
        with contextlib.suppress(OSError):
            _owner_file(path).unlink()
        lock.release()


def holder_of(path: Path) -> str:
    """Return the process that holds the file lock ``path``, as far as it is known."""
    try:
        return _owner_file(path).read_text()
    except OSError:
        return "another process"


def _write_holder(path: Path) -> None:
    """Write down this process for those that wait, if the file system allows it."""
    import psutil

    arguments = psutil.Process().cmdline()
    command = " ".join(arguments[:_ARGUMENTS])
    with contextlib.suppress(OSError):
        _owner_file(path).write_text(f"process {os.getpid()} ({command})")


def _owner_file(path: Path) -> Path:
    return path.with_suffix(".owner")
