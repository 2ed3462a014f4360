"""Files of runs, opened by names of an index: never through a link, never outside of the run."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import IO


def open_below(folder: Path, path: str) -> IO[bytes]:
    """Open a regular file below a folder, which no part of ``path`` leads out of.

    Each part is opened from the one above it and may be no link, so that one that is put there
    meanwhile is not followed either. Raises OSError.
    """
    *folders, name = PurePosixPath(path).parts
    if PurePosixPath(path).is_absolute() or ".." in (*folders, name):
        raise OSError(errno.EACCES, "it is outside of the run", path)
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for part in folders:
            above, parent = parent, _open_folder(part, parent)
            os.close(above)
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    finally:
        os.close(parent)
    return _regular(descriptor, path)


def _open_folder(name: str, parent: int) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _regular(descriptor: int, path: str) -> IO[bytes]:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return open(descriptor, "rb")
