"""Files: written whole or not at all, and arrays that are read so."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

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


def output_problem(path: Path) -> str:
    """Return why a file can't be written, and what to do; "" where it can be."""
    if os.path.isdir(path):
        return f"{path} is a folder; name a file"
    if os.path.exists(path) and not os.path.isfile(path):
        return f"{path} is a device, a pipe or a socket; name a file"  # which is never replaced
    if not os.path.isdir(path.parent):
        return f"there is no folder {path.parent}; make it, or name a file in another one"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"{path.parent} can't be written; grant access, or name a file elsewhere"
    return ""


def free_space(folder: Path) -> int | None:
    """Return the bytes that are free on a folder's disk; None for a file system that counts none.

    Some of those in user space, such as mounted buckets, tell 0 of 0 bytes.
    """
    usage = shutil.disk_usage(folder)
    return usage.free if usage.total else None


class FileState(NamedTuple):
    """The key of a file's content in a cache: another file at its path has another state.

    ``modified`` is when its content changed, in nanoseconds, and ``changed`` when its status did,
    which no program can set.
    """

    path: str
    inode: int
    size: int
    modified: int
    changed: int

    @classmethod
    def of(cls, path: str | Path) -> FileState:
        """Return the state of a file now, with its absolute path; raises OSError."""
        status = os.stat(path)
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return cls(os.path.abspath(path), status.st_ino, status.st_size, *times)


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


_DAMAGES = (
    ValueError,
    KeyError,
    EOFError,
    NotImplementedError,
    OverflowError,
    MemoryError,  # of a header with a size that the file does not have
    RuntimeError,  # of an encrypted member
    SyntaxError,
    TypeError,  # of a header that is no table
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


class DamagedFile(ValueError):
    """A file is cut off, or is something else than its name says."""


def read_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of an .npz file by name; raises OSError and DamagedFile."""
    import numpy as np

    if not zipfile.is_zipfile(path):  # numpy would take it for a pickle, and advise to load that
        path.stat()  # which is_zipfile does not raise the error of
        raise DamagedFile("it is no archive")
    try:
        with np.load(path, allow_pickle=False) as file:
            if len(set(file.files)) < len(file.files):
                raise ValueError("it has two arrays of one name")
            return dict(file)
    except _DAMAGES as error:
        raise DamagedFile(str(error)) from error


def content_size(path: Path) -> int:
    """Return the unpacked size of an .npz file in bytes; raises OSError and DamagedFile."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile as error:
        raise DamagedFile(str(error)) from error


def write_arrays(file: Path | IO[bytes], arrays: Mapping[str, Any]) -> None:
    """Write an .npz file, as numpy.savez does, but with any names: those are often a model's.

    numpy.savez takes the names as keyword arguments, and has arguments of its own.
    """
    import numpy as np
    from numpy.lib import format as npy

    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asanyarray(values), allow_pickle=False)
