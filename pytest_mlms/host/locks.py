"""One measurement at a time on a device of a host, whoever started it.

File locks in a folder that all users share.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import filelock
import psutil

from pytest_mlms.errors import MlmsError, Unavailable
from pytest_mlms.records import device_name

__all__ = ["exclusive", "own_cores"]

_SHARED = Path("/tmp")  # not TMPDIR, which CI sets for each job: those must wait for each other too


def _shared_folder() -> Path:
    """Return the folder of this host's locks.

    MLMS_LOCKS in the environment names another, as for containers.
    """
    shared = _SHARED if os.access(_SHARED, os.W_OK) else Path(tempfile.gettempdir())
    return Path(os.environ.get("MLMS_LOCKS") or shared / "pytest-mlms-locks")


@contextlib.contextmanager
def exclusive(
    device: str,
    timeout: float,
    folder: Path | None = None,
    cores: Collection[int] = (),
    uuid: str = "",
) -> Iterator[None]:
    """Hold the device, waiting up to ``timeout`` seconds; of the CPU only ``cores`` where they are
    given.

    ``uuid`` is what the device is whatever this session calls it, where that is known: cuda:0 of
    two sessions may be two devices, and two names one. Raises Unavailable, which names the process
    that has it, and MlmsError where ``folder`` can't be written.

    The CPU is a lock for each core that this process may use, taken in ascending order, so that
    sessions on disjoint cores do not wait for each other and those that share some do. The kernel
    drops a dead holder's locks.
    """
    folder = folder or _shared_folder()
    with contextlib.ExitStack() as held:
        try:
            if not folder.exists():
                folder.mkdir(exist_ok=True)
                folder.chmod(
                    0o777
                )  # for every user, past the umask; no sticky bit, or others' locks can't be opened
            for name in _lock_names(device_name(device), cores, uuid):
                held.enter_context(_hold(folder / f"{name}.lock", device, timeout))
        except OSError as error:
            raise MlmsError(
                f"can't lock device {device} in {folder}: {error.strerror}; grant access to it"
            ) from error
        yield


def own_cores() -> list[int]:
    """Return the cores that this process may use, in ascending order."""
    affinity = getattr(psutil.Process(), "cpu_affinity", None)  # macOS has none
    return sorted(affinity() if affinity else range(os.cpu_count() or 1))


def _lock_names(device: str, cores: Collection[int], uuid: str) -> list[str]:
    if device == "cpu":
        return [f"core-{core}" for core in sorted(cores or own_cores())]
    return [re.sub(r"[^A-Za-z0-9._-]", "-", uuid or device)]


@contextlib.contextmanager
def _hold(path: Path, device: str, timeout: float) -> Iterator[None]:
    lock = filelock.FileLock(path, mode=0o666)
    owner = path.with_suffix(".owner")
    try:
        lock.acquire(timeout=timeout)
    except filelock.Timeout:
        raise Unavailable(
            f"device {device} is in use by {_read(owner)}, for over {timeout:g} s; wait for it, "
            f"or end it, or give each session its own cores (taskset)"
        ) from None
    try:
        with contextlib.suppress(OSError):  # only a help for the message above
            owner.write_text(f"process {os.getpid()} ({' '.join(psutil.Process().cmdline()[:4])})")
        yield
    finally:
        lock.release()


def _read(owner: Path) -> str:
    try:
        return owner.read_text()
    except OSError:
        return "another process"
