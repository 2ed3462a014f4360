"""The mirror on a remote host: a folder for each run, so that no run disturbs another, in a folder
for each project.

A run's folder is made of files that are kept by their digests, so what was sent once is not sent
again. A run holds its folder by a lock until its last worker ends, however it ends; the next run
removes what nobody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import Any

from pytest_mlms.artifacts.digest import digest_of

__all__ = ["receive"]

_KEPT = 30 * 86400  # seconds that a file is kept for, after its last use


def receive(channel: Any) -> None:
    """Make the mirror of a run here, with what the controller sends of what is lacking, and go
    there.
    """
    run, wanted = channel.receive()
    home = Path("mlms-mirror").absolute()
    files, folder = home / "files", home / "runs" / run
    for made in (files, folder.parent):
        made.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("a") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        _tidy(home)
        fcntl.flock(_open(folder), fcntl.LOCK_SH)  # which the kernel drops with this process
        lacking = [digest for digest in sorted(set(wanted.values())) if not _has(files / digest)]
    channel.send(lacking)
    for digest in lacking:
        _write(files / digest, channel.receive())
    for place, digest in wanted.items():
        _write(
            folder / place, (files / digest).read_bytes()
        )  # a copy, as a test may change its files
    os.chdir(folder)


def _tidy(home: Path) -> None:
    """Remove the runs that nobody holds, and files that no run has used for long."""
    for lock in (home / "runs").glob("*.lock"):
        folder = lock.with_suffix("")
        held = _open(folder)
        with contextlib.suppress(BlockingIOError):  # one of its workers lives
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.exists():
                shutil.rmtree(folder)
            lock.unlink()
        os.close(held)
    for path in (home / "files").iterdir():
        if path.stat().st_mtime < time.time() - _KEPT:
            path.unlink()


def _open(folder: Path) -> int:
    """Return a descriptor of a run's lock, which is looked for only while the project's is held."""
    return os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT)


def _has(path: Path) -> bool:
    try:
        os.utime(path)
        return digest_of(path) == path.name
    except OSError:
        return False


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    partial.write_bytes(data)
    os.replace(partial, path)
