"""Device locks: one measurement at a time on a device of a host, of all users' sessions.

The locks are files in a folder that is shared by users who do not trust each other. A lock is an
empty file of which nothing but the kernel's lock is used: nothing is written to it, no link is
followed, and a name that stands for something else is an error. The folder is sticky, so that only
its owner and a file's owner can remove a lock. A lock that was removed or replaced nevertheless
does not count: the name must still be that of the file that was locked.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil

from pytest_mlms.core.errors import DeviceInUse, MlmsError
from pytest_mlms.core.records import device_name
from pytest_mlms.core.waits import Waiting, holder_of, in_silence

# Not TMPDIR, which CI sets for each job: jobs must wait for each other too.
_SHARED = Path("/tmp")
_CPUS = Path("/sys/devices/system/cpu")
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# O_NONBLOCK: a FIFO or a leased file must not block. No O_CREAT with what may exist:
# fs.protected_regular refuses it in sticky folders for files of other users.
_FILE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER_MODE = 0o1777
_FILE_MODE = 0o666
_POLL = 0.05  # seconds between attempts
_MODE_SECONDS = 0.2  # for the user who just made a file to open it to others

_OWN: dict[Path, int] = {}
"""The locks that this process holds, with the thread that took each."""


class LockHeld(Exception):
    """Another process had the lock for all of the time to wait."""


@contextlib.contextmanager
def open_shared_folder(path: Path) -> Iterator[int]:
    """Make the folder if needed, for all users whatever the umask; yield a descriptor of it.

    Raises MlmsError where every user may remove the locks of others, OSError where it is no folder.
    """
    is_new = True
    try:
        path.mkdir()
    except FileExistsError:
        is_new = False
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        _make_sticky(path, descriptor, is_new)
        yield descriptor
    finally:
        os.close(descriptor)


def _make_sticky(path: Path, descriptor: int, is_new: bool) -> None:
    """Let all users make locks in the folder, and remove their own only."""
    status = os.fstat(descriptor)
    is_ours = status.st_uid == os.geteuid()
    if is_new and is_ours:
        os.fchmod(descriptor, _FOLDER_MODE)
        return
    if not status.st_mode & stat.S_IWOTH or status.st_mode & stat.S_ISVTX:
        return
    try:
        os.fchmod(descriptor, _FOLDER_MODE)
    except PermissionError:
        raise MlmsError(
            f"{path} lets every user remove the locks of others; "
            f"have its owner run 'chmod +t {path}', or name another folder in MLMS_LOCKS"
        ) from None


@contextlib.contextmanager
def hold_lock_file(folder: int, name: str, timeout: float) -> Iterator[int]:
    """Hold the lock ``name`` of a folder, waiting up to ``timeout`` seconds; yield its descriptor.

    Raises LockHeld, and OSError for a name of something else than a lock.
    """
    end = time.monotonic() + timeout
    descriptor = _lock(folder, name)
    while descriptor is None:
        if time.monotonic() > end:
            raise LockHeld
        time.sleep(_POLL)
        descriptor = _lock(folder, name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_in_place(folder: int, name: str, descriptor: int) -> bool:
    """Return whether a lock's name still names the file that is open."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _lock(folder: int, name: str) -> int | None:
    """Return a descriptor of the locked file, None where another process holds it."""
    descriptor = _open(folder, name)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    if not is_in_place(folder, name, descriptor):
        os.close(descriptor)
        return None
    return descriptor


def _open(folder: int, name: str) -> int:
    """Return a descriptor of the lock file, which is made where there is none."""
    end = time.monotonic() + _MODE_SECONDS
    while True:
        try:
            return _open_existing(folder, name)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                flags = _FILE_FLAGS | os.O_CREAT | os.O_EXCL
                descriptor = os.open(name, flags, _FILE_MODE, dir_fd=folder)
                os.fchmod(descriptor, _FILE_MODE)  # whatever the umask
                return descriptor
        except PermissionError:
            if time.monotonic() > end:
                raise
            time.sleep(_POLL)


def _open_existing(folder: int, name: str) -> int:
    descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    status = os.fstat(descriptor)
    if (
        not stat.S_ISREG(status.st_mode) or status.st_nlink > 1
    ):  # two names of one lock wait for ever
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file of one name", name)
    return descriptor


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

    Raises DeviceInUse, which names the process that holds the device, at once where it is this
    thread itself, and MlmsError where ``folder`` or a lock can't be used. Warns where a lock was
    removed while it was held.
    """
    folder = folder or locks_folder()
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


def locks_folder() -> Path:
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
            _check_own(path, device)
            with waiting(subject):
                lock = _wait_for(held, path, folder, device, timeout)
        _OWN[path] = threading.get_ident()
        try:
            yield
        finally:
            del _OWN[path]
        if not is_in_place(folder, path.name, lock):
            problem = f"{path} was removed while device {device} was measured"
            warnings.warn(f"{problem}; another session may have measured beside it", stacklevel=2)


def _check_own(path: Path, device: str) -> None:
    """Raise DeviceInUse where this thread would wait for itself."""
    if _OWN.get(path) == threading.get_ident():
        problem = f"device {device} is in use by this process itself, which would wait for ever"
        advice = "in a test of an item use its mlms_predictor; elsewhere let go of the device first"
        raise DeviceInUse(f"{problem}; {advice}")


def _wait_for(
    held: contextlib.ExitStack, path: Path, folder: int, device: str, timeout: float
) -> int:
    try:
        return held.enter_context(hold_lock_file(folder, path.name, timeout))
    except LockHeld:
        problem = f"device {device} is in use by {holder_of(path)}, for over {timeout:.3g} s"
        advice = "wait for it, or end it, or give each session its own cores (taskset)"
        raise DeviceInUse(f"{problem}; {advice}") from None
