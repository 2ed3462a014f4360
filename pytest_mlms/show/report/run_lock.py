"""The lock on the folder of a run: one session at a time writes to it."""

from __future__ import annotations

from pathlib import Path

import filelock

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.waits import holder_of

_LOCK = ".lock"


class RunInUse(MlmsError):
    """Another session writes to the run."""


class RunLock:
    """A lock on the folder of a run, which the kernel releases when its process ends."""

    def __init__(self, run_folder: Path) -> None:
        self._folder = run_folder
        self._path = run_folder / _LOCK
        self._lock = filelock.FileLock(self._path)

    def acquire(self) -> bool:
        """Return whether the run is ours now: some file systems have no locks.

        Raises RunInUse, which names the process of the session that has it.
        """
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout:
            problem = f"{self._folder} is in use by {holder_of(self._path)}"
            raise RunInUse(f"{problem}; wait for it, or end it") from None
        except (OSError, NotImplementedError):
            return False
        return True

    def release(self) -> None:
        """Let other sessions have the run."""
        self._lock.release()
