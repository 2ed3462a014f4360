"""Files that are written whole or not at all, and files of users that are read."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

_PART = 1 << 16  # bytes


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``, and rename it to ``path`` where the block succeeds.

    Readers see the old file or the new one, never a part. Where the block fails, the temporary file
    is removed and ``path`` is left as it was. The folder must exist. The name can't be guessed: the
    folder may be one where others put links. It has the same suffix, as some libraries add one.
    Raises OSError where ``path`` is a device, such as /dev/full, which the rename would remove.
    """
    with contextlib.suppress(FileNotFoundError):
        _check_regular(path, os.stat(path))
    token = os.urandom(8).hex()
    temporary = path.with_name(f".{token}.{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write ``data`` to ``path``, as ``replacing`` does; text is UTF-8."""
    content = data.encode() if isinstance(data, str) else data
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def free_space(folder: Path) -> int | None:
    """Return the bytes that are free on a folder's disk; None for a file system that counts none.

    Some of those in user space, such as mounted buckets, tell 0 of 0 bytes.
    """
    usage = shutil.disk_usage(folder)
    return usage.free if usage.total else None


def total_size(paths: Iterable[Path]) -> int:
    """Return the bytes of files and of all that is in folders."""
    return sum(part.stat().st_size for path in paths for part in (path, *path.rglob("*")))


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading, without waiting for whoever writes to a pipe.

    Raises OSError, whose ``strerror`` says why; also for a folder, a pipe, a socket and a device.
    """
    _check_regular(path, os.stat(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _check_regular(path, os.fstat(descriptor))
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _check_regular(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket", str(path))


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes; raises OSError."""
    with open_regular(path) as file:
        return _read(file, path, most)


def _read(file: IO[bytes], path: Path, most: int) -> bytes:
    size = min(most, os.fstat(file.fileno()).st_size)
    data = file.read(size + 1)  # as many bytes are allocated
    while len(data) <= most and (more := file.read(_PART)):  # it grows, or is one of /proc
        data += more
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 10:,} KiB", str(path))
    return data


def read_secret(path: Path, most: int) -> bytes:
    """Return the content of a file with a token, as ``read_regular`` does; raises OSError.

    Another user must not be able to choose the token. Containers mount secrets as files of root
    that all may read.
    """
    with open_regular(path) as file:  # once: there may be another file by the next time
        status = os.fstat(file.fileno())
        if status.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, "it belongs to another user", str(path))
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise OSError(errno.EPERM, "others may write it; chmod go-w", str(path))
        return _read(file, path, most)
