"""Lock files in a folder that users share who do not trust each other.

A lock is an empty file of which nothing but the kernel's lock is used: nothing is written to it,
no link is followed, and a name that stands for something else is an error. The folder is sticky,
so that only its owner and a file's owner can remove a lock. A lock that was removed or replaced
nevertheless does not count: the name must still be that of the file that was locked.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_mlms.core.errors import MlmsError

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# O_NONBLOCK: a FIFO or a leased file must not block. No O_CREAT with what may exist:
# fs.protected_regular refuses it in sticky folders for files of other users.
_FILE_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER_MODE = 0o1777
_FILE_MODE = 0o666
_POLL = 0.05  # seconds between attempts
_MODE_SECONDS = 0.2  # for the user who just made a file to open it to others


class LockHeld(Exception):
    """Another process had the lock for all of the time to wait."""


@contextlib.contextmanager
def open_shared_folder(path: Path) -> Iterator[int]:
    """Make the folder if needed, for all users whatever the umask; yield a descriptor of it.

    Raises MlmsError where every user may remove the locks of others, OSError where it is no folder.
    """
    is_new = _make(path)
    descriptor = os.open(path, _FOLDER_FLAGS)
    try:
        _make_sticky(path, descriptor, is_new)
        yield descriptor
    finally:
        os.close(descriptor)


def _make(path: Path) -> bool:
    try:
        path.mkdir()
    except FileExistsError:
        return False
    return True


def _make_sticky(path: Path, descriptor: int, is_new: bool) -> None:
    """Let all users make locks in the folder, and none remove those of others."""
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

    Raises LockHeld, and OSError for a name that is not that of a lock.
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
    """Return whether a lock's name is still that of the file that is open."""
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
                return _create(folder, name)
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


def _create(folder: int, name: str) -> int:
    flags = _FILE_FLAGS | os.O_CREAT | os.O_EXCL
    descriptor = os.open(name, flags, _FILE_MODE, dir_fd=folder)
    os.fchmod(descriptor, _FILE_MODE)  # whatever the umask
    return descriptor
