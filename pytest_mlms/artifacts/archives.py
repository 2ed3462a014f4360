"""Archives to folders: nothing is written outside, nothing is half there under its final name."""

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
    """Return whether the name is that of an archive that unpack reads."""
    return path.name.endswith(_SUFFIXES)


def unpack(path: Path, folder: Path) -> None:
    """Unpack ``path`` as ``folder``, which appears when it is whole; raises UnsafeArchive."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        target = Path(temporary) / "content"
        target.mkdir()
        try:
            (_unzip if path.name.endswith(".zip") else _untar)(path, target)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, RuntimeError) as error:
            raise UnsafeArchive(str(error)) from error
        target.rename(folder)


def _unzip(path: Path, target: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = PurePosixPath(member.filename.replace("\\", "/"))
            if name.is_absolute() or ".." in name.parts:
                raise UnsafeArchive(f"{member.filename!r} would be written outside the folder")
        _fits(sum(member.file_size for member in archive.infolist()), target)
        archive.extractall(target)


def _untar(path: Path, target: Path) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise UnsafeArchive(
            "this Python can't unpack tar files safely; use 3.10.12, 3.11.4, 3.12 or later"
        )
    with tarfile.open(path) as archive:
        _fits(sum(member.size for member in archive.getmembers()), target)
        archive.extractall(
            target, filter="data"
        )  # PEP 706: refuses links and names that lead outside, devices


def _fits(size: int, target: Path) -> None:
    free = shutil.disk_usage(target).free
    if size > free:
        full = os.strerror(errno.ENOSPC)  # as said where it is found out later
        raise UnsafeArchive(
            f"{full}: it unpacks to {size:,} bytes, and {free:,} are free on that disk"
        )
