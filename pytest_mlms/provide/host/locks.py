"""Device locks: one measurement at a time on a device of a host, of all users' sessions.

The locks are files in a folder that all users share; see ``lock_files.py``.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil

from pytest_mlms.core.errors import MlmsError, Unavailable
from pytest_mlms.core.records import device_name
from pytest_mlms.core.waits import Waiting, holder_of, in_silence
from pytest_mlms.provide.host.lock_files import (
    LockHeld,
    hold_lock_file,
    is_in_place,
    open_shared_folder,
)

# Not TMPDIR, which CI sets for each job: jobs must wait for each other too.
_SHARED = Path("/tmp")
_CPUS = Path("/sys/devices/system/cpu")


@contextlib.contextmanager
def exclusive(
    device: str,
    timeout: float,
    folder: Path | None = None,
    cores: Collection[int] = (),
    uuid: str = "",
    waiting: Waiting = in_silence,
) -> Iterator[None]:
    """Hold a device, waiting up to ``timeout`` seconds for it.

    The CPU has a lock for each core that this process may use, or for ``cores`` where they are
    given; threads of one core (SMT) have one lock. They are taken in ascending order, so that
    sessions on disjoint cores do not wait for each other, and others do. Another device has one
    lock, named by its ``uuid`` where that is known: cuda:0 of two sessions may be two devices, and
    two names one. The kernel releases the locks of a process that died. ``waiting`` tells a person
    who holds the device.

    Raises Unavailable, which names the process that holds the device, and MlmsError where
    ``folder`` or a lock can't be used. Warns where a lock was removed while it was held.
    """
    folder = folder or _shared_folder()
    names = _lock_names(device_name(device), cores, uuid)
    path = folder
    with contextlib.ExitStack() as held:
        try:
            descriptor = held.enter_context(open_shared_folder(folder))
            end = time.monotonic() + timeout
            for name in names:
                path = folder / f"{name}.lock"
                left = max(end - time.monotonic(), 0)
                held.enter_context(_hold(path, descriptor, device, left, waiting))
        except OSError as error:
            problem = f"can't lock device {device} by {path}: {error.strerror}"
            advice = "grant access to it or remove it, or name another folder in MLMS_LOCKS"
            raise MlmsError(f"{problem}; {advice}") from error
        yield


def own_cores() -> list[int]:
    """Return the cores that this process may use, in ascending order."""
    process = psutil.Process()
    if not hasattr(process, "cpu_affinity"):  # such as on macOS
        return list(range(os.cpu_count() or 1))
    return sorted(process.cpu_affinity())


def _shared_folder() -> Path:
    """Return the folder of this host's locks.

    MLMS_LOCKS in the environment names another, as for containers.
    """
    named = os.environ.get("MLMS_LOCKS")
    if named:
        return Path(os.path.expanduser(named))
    if os.access(_SHARED, os.W_OK):
        return _SHARED / "pytest-mlms-locks"
    return Path(tempfile.gettempdir(), "pytest-mlms-locks")


def _lock_names(device: str, cores: Collection[int], uuid: str) -> list[str]:
    if device == "cpu":
        return [f"core-{core}" for core in sorted(set(map(_first_sibling, cores or own_cores())))]
    name = re.sub(r"[^A-Za-z0-9._-]", "-", uuid or device)
    return [name]


def _first_sibling(core: int) -> int:
    """Return the first of the threads that share a core; itself where the kernel doesn't tell."""
    try:
        text = (_CPUS / f"cpu{core}/topology/thread_siblings_list").read_text()
        return min(int(number) for number in re.findall(r"\d+", text))
    except (OSError, ValueError):
        return core


@contextlib.contextmanager
def _hold(path: Path, folder: int, device: str, timeout: float, waiting: Waiting) -> Iterator[None]:
    """Hold the lock at ``path``, in the folder that is open as ``folder``."""

    def subject() -> str:
        return f"device {device}, which {holder_of(path)} holds"

    with contextlib.ExitStack() as held:
        try:
            lock = held.enter_context(hold_lock_file(folder, path.name, 0))
        except LockHeld:
            with waiting(subject):
                lock = _wait_for(held, path, folder, device, timeout)
        yield
        if not is_in_place(folder, path.name, lock):
            problem = f"{path} was removed while device {device} was measured"
            warnings.warn(f"{problem}; another session may have measured beside it", stacklevel=2)


def _wait_for(
    held: contextlib.ExitStack, path: Path, folder: int, device: str, timeout: float
) -> int:
    try:
        return held.enter_context(hold_lock_file(folder, path.name, timeout))
    except LockHeld:
        problem = f"device {device} is in use by {holder_of(path)}, for over {timeout:.3g} s"
        advice = "wait for it, or end it, or give each session its own cores (taskset)"
        raise Unavailable(f"{problem}; {advice}") from None
