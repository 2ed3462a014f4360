"""The workspace of a run on a remote host: the small files that collection needs.

Below the working folder of a project there is a folder for each run, so that runs do not disturb
each other. Its files are copies of a store of files by digest, so what was sent once is not sent
again. A run locks its folder until its last worker ends, however it ends. The next run removes the
folders that nobody has locked.

This module runs on the remote host; ``workspace_sync.py`` is the controller's side.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path
from typing import Any

from pytest_mlms.core.files import write_atomically
from pytest_mlms.provide.artifacts.digest import digest_of

_FOLDER = "mlms-mirror"
_KEPT_SECONDS = 30 * 86400  # after the last use of a stored file


def receive(channel: Any) -> None:
    """Make the workspace of a run with the files that the controller sends, and change into it.

    ``channel`` is execnet's. The controller sends the run's name with the digests of its files by
    their paths. The answer is the list of the digests that are missing here; their content follows
    in that order.
    """
    run, digests = channel.receive()
    root = Path(_FOLDER).absolute()
    store = root / "files"
    folder = root / "runs" / run
    store.mkdir(parents=True, exist_ok=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("a") as project_lock:
        fcntl.flock(project_lock, fcntl.LOCK_EX)
        _remove_unused(root)
        # the kernel releases this lock when the process ends
        fcntl.flock(_open_lock(folder), fcntl.LOCK_SH)
        missing = [one for one in sorted(set(digests.values())) if not _is_stored(store / one)]
    channel.send(missing)
    for digest in missing:
        content = channel.receive()
        write_atomically(store / digest, content)
    for relative, digest in digests.items():  # no links, because a test may change its files
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (store / digest).read_bytes())
    os.chdir(folder)


def _is_stored(path: Path) -> bool:
    """Return whether a file is in the store, and mark it as used now."""
    try:
        os.utime(path)
        return digest_of(path) == path.name
    except OSError:
        return False


def _remove_unused(root: Path) -> None:
    """Remove the folders of runs that no worker has locked, and files unused for a month."""
    for lock in (root / "runs").glob("*.lock"):
        _remove_unlocked(lock.with_suffix(""), lock)
    oldest = time.time() - _KEPT_SECONDS
    for path in (root / "files").iterdir():
        if path.stat().st_mtime < oldest:
            path.unlink()


def _remove_unlocked(folder: Path, lock: Path) -> None:
    descriptor = _open_lock(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # one of its workers lives
        return
    else:
        if folder.exists():
            shutil.rmtree(folder)
        lock.unlink()
    finally:
        os.close(descriptor)


def _open_lock(folder: Path) -> int:
    """Return a descriptor of a run's lock file; call only with the project's lock held."""
    path = folder.with_name(f"{folder.name}.lock")
    return os.open(path, os.O_RDWR | os.O_CREAT)
