"""Unpacked archives in the cache, whose files are compared with what was unpacked.

Beside the folder of an archive is a table of the digests of its files. A process compares the
content with it when it first uses the folder, and after that whenever a file's status has changed.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.waits import Waiting, hold_lock, in_silence
from pytest_mlms.provide.artifacts.archives import unpack
from pytest_mlms.provide.artifacts.digest import sha256_of

_Status = tuple[int, ...]

_known: dict[Path, Mapping[str, _Status]] = {}
"""The status of the files of each folder when this process compared their content."""


def unpacked(
    archive: Path, digest: str, cache: Path, limit: float, waiting: Waiting = in_silence
) -> Path:
    """Return the folder of the content of an archive with this digest, unpacked if need be.

    A folder that was changed is unpacked again, with a warning. ``waiting`` tells a person which
    process unpacks it now. Raises UnsafeArchive and OSError.
    """
    folder = cache / "unpacked" / digest[:2] / digest
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder.with_suffix(".lock"), waiting):
        table = folder.with_suffix(".json")
        if folder.exists() and table.exists():
            if _is_unchanged(folder, table):
                return folder
            text = f"{folder} was changed since it was unpacked; it was unpacked again"
            warnings.warn(text, stacklevel=2)
        _unpack(archive, folder, table, limit)
    return folder


def _unpack(archive: Path, folder: Path, table: Path, limit: float) -> None:
    _known.pop(folder, None)
    table.unlink(missing_ok=True)
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    digests = unpack(archive, folder, limit)
    status = _status_of(folder)
    write_atomically(table, json.dumps(digests))
    _known[folder] = status


def _is_unchanged(folder: Path, table: Path) -> bool:
    if folder.is_symlink():
        return False
    status = _status_of(folder)
    if _known.get(folder) == status:
        return True
    if _digests_of(folder, status) != _read(table):
        return False
    _known[folder] = status
    return True


def _read(table: Path) -> object:
    try:
        return json.loads(table.read_text())
    except ValueError:  # cut short by a full disk, or changed
        return None


def _digests_of(folder: Path, status: Mapping[str, _Status]) -> dict[str, str]:
    """Return the digest of each file; "" for anything else, such as a link."""
    digests = {}
    for name, facts in status.items():
        is_file = stat.S_ISREG(facts[0])
        digests[name] = sha256_of(folder / name) if is_file else ""
    return digests


def _status_of(folder: Path) -> dict[str, _Status]:
    """Return the status of all that is in a folder but folders, by relative path.

    The time of the last change of the status is in it, which no program can set.
    """
    return dict(_statuses(folder, ""))


def _statuses(folder: Path, prefix: str) -> Iterator[tuple[str, _Status]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from _statuses(folder / entry.name, f"{name}/")
            else:
                found = entry.stat(follow_symlinks=False)
                times = (found.st_mtime_ns, found.st_ctime_ns)
                yield name, (found.st_mode, found.st_ino, found.st_size, *times)
