"""Lock files by path, or at a revision of git."""

from __future__ import annotations

import subprocess
from pathlib import Path

from pytest_mlms.keep.lockfile.lock import Lock
from pytest_mlms.keep.lockfile.reading import LockError, parse_lock, read_lock

_GIT = "git:"


def read_version(name: str, file: Path) -> Lock:
    """Return the lock at a path, or for ``git:REV`` that of ``file`` at a revision.

    Raises LockError.
    """
    if not name.startswith(_GIT):
        return read_lock(Path(name))
    revision = name.removeprefix(_GIT)
    if not revision or revision.startswith("-"):
        raise LockError(f"{name!r} names no revision; write one as in 'git:HEAD'")
    path = file.absolute()
    try:
        done = _show(revision, path)
    except OSError as error:
        raise LockError(f"{name}: git can't be run: {error.strerror}; install it") from None
    if done.returncode:
        reason = _reason(done)
        raise LockError(f"{name} has no {path.name}: {reason}; name another revision")
    return parse_lock(done.stdout, f"{revision}:{path.name}")


def _show(revision: str, path: Path) -> subprocess.CompletedProcess[bytes]:
    """Have git print a file as it was at a revision."""
    return subprocess.run(
        ["git", "show", f"{revision}:./{path.name}"],
        cwd=path.parent,
        capture_output=True,
        check=False,
    )


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the first line of git's error."""
    text = done.stderr.decode(errors="replace")
    lines = text.strip().splitlines()
    if lines:
        return lines[0]
    return f"git ended with status {done.returncode}"
