"""A run's results as JSON lines, one an item, written as the items finish; docs/results.md
describes them.

What can't be written (a full disk) is held and tried again, and handed out at the end: nothing
measured is lost.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest_mlms

__all__ = ["FORMAT", "ResultsFile"]

FORMAT = 1
"""Raised when a line's fields change their meaning; new fields may come without."""


_OURS = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}|\.?latest.*")


class ResultsFile:
    """Appends lines to results.jsonl in the run's folder, which is made for the first one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.jsonl"
        self.fault = ""
        self.unwritten: list[str] = []
        self.items = 0

    def go_on(self) -> None:
        """Cut off what was being written when the run was killed, so that the next line begins
        where one ends.
        """
        try:
            with self.path.open("rb+") as file:
                whole = file.read().rfind(b"\n") + 1
                file.truncate(whole)
        except OSError as error:
            self.fault = f"{self.path}: {error.strerror}"

    def append(self, result: Mapping[str, Any]) -> None:
        """Add an item's line, behind the run's own line where it is the first."""
        if not self.items:
            self._write(
                {
                    "type": "run",
                    "command": sys.argv,
                    "python": sys.version,
                    "plugin": pytest_mlms.__version__,
                }
            )
        self.items += 1
        self._write({"type": "item", **result})

    def note(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Add a line of another type."""
        self._write({"type": kind, **facts})

    def finish(self, exit_status: int) -> None:
        """Add the last line; without it the run was killed.

        One that the disk refuses has failed the run.
        """
        if self.items:
            end = {"type": "end", "exit_status": exit_status, "items": self.items}
            self._write(end)
            if self.fault:
                self.unwritten[-1] = self._line({**end, "exit_status": exit_status or 1})

    def _line(self, fields: Mapping[str, Any]) -> str:
        now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
        about = {"format": FORMAT, "run": self.path.parent.name, "time": now}
        return json.dumps({**about, **fields}, allow_nan=False)

    def _write(self, fields: Mapping[str, Any]) -> None:
        self.unwritten.append(self._line(fields))
        try:
            if not self.path.exists():
                _make_run_folder(self.path.parent)
            _append(self.path, "".join(f"{line}\n" for line in self.unwritten).encode())
            self.unwritten.clear()
            self.fault = ""
        except OSError as error:
            self.fault = f"{self.path}: {error.strerror}"


def _append(path: Path, data: bytes) -> None:
    """Append all of ``data`` or, on a disk that takes only a part, nothing; raises OSError."""
    with path.open("ab", buffering=0) as file:
        before = file.tell()
        if file.write(data) != len(data):
            file.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _make_run_folder(folder: Path) -> None:
    """Make it, keep it out of git, and let ``latest`` point to it."""
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder.parent / ".gitignore"
    if not ignore.exists() and all(_OURS.fullmatch(path.name) for path in folder.parent.iterdir()):
        ignore.write_text("*\n")  # where there is anything else, it may be wanted in git
    temporary = folder.parent / f".latest-{folder.name}"
    with contextlib.suppress(OSError):  # a convenience that some file systems lack
        temporary.symlink_to(folder.name)
        os.replace(temporary, folder.parent / "latest")
