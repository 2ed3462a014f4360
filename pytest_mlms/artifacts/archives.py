"""Unpacking archives safely: nothing is written outside, and the folder appears when complete."""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

__all__ = ["UnsafeArchive", "is_archive", "unpack"]

_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


class UnsafeArchive(Exception):
    """An archive that can't be unpacked, or must not be; the text says why."""


def is_archive(path: Path) -> bool:
    """Return whether a file's name is that of an archive that ``unpack`` reads."""
    return path.name.endswith(_SUFFIXES)


def unpack(path: Path, folder: Path) -> None:
    """Unpack the archive ``path`` to ``folder``, which appears when it is complete.

    Raises UnsafeArchive for a damaged archive, for members that would be written outside of the
    folder, and for more content than the disk has room for.
    """
    extract = _extract_zip if path.suffix == ".zip" else _extract_tar
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        target = Path(temporary, "content")
        target.mkdir()
        try:
            extract(path, target)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, RuntimeError) as error:
            raise UnsafeArchive(str(error)) from error
        target.rename(folder)


def _extract_zip(path: Path, target: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            _check_name(member.filename)
        size = sum(member.file_size for member in members)
        _check_space(size, target)
        archive.extractall(target)


def _check_name(filename: str) -> None:
    name = PurePosixPath(filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts:
        raise UnsafeArchive(f"{filename!r} would be written outside the folder")


def _extract_tar(path: Path, target: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise UnsafeArchive(
            "this Python can't unpack tar files safely; use 3.10.12, 3.11.4, 3.12 or later"
        )
    with tarfile.open(path) as archive:
        size = sum(member.size for member in archive.getmembers())
        _check_space(size, target)
        # PEP 706: the filter refuses devices, and names and links that lead outside.
        archive.extractall(target, filter="data")


def _check_space(size: int, target: Path) -> None:
    free = shutil.disk_usage(target).free
    if size > free:
        full = os.strerror(errno.ENOSPC)  # the system's words for it, as in other errors
        problem = f"it unpacks to {size:,} bytes, and {free:,} are free on that disk"
        raise UnsafeArchive(f"{full}: {problem}")
