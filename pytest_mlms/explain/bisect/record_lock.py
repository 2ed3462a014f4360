"""The lock on the record of a bisection: one process at a time writes to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import filelock

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.waits import holder_of


@contextlib.contextmanager
def hold_record(path: Path) -> Iterator[None]:
    """Hold the record ``path``, which the kernel releases when this process ends.

    Raises MlmsError, which names the process that has it. Where the file system has no locks, or
    the folder can't be written, nothing is held.
    """
    lock_file = path.with_name(f".{path.name}.lock")
    lock = filelock.FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        problem = f"{path} is in use by {holder_of(lock_file)}"
        raise MlmsError(f"{problem}; wait for it, or name another file with --file") from None
    except (OSError, NotImplementedError):
        pass
    try:
        yield
    finally:
        lock.release()
