"""The results file of a run: JSON lines, written as the items finish.

docs/results.md describes the lines; ``pytest_mlms.item_result`` makes those of items. A line that
can't be written, as on a full disk, is held and tried again with the next one. What is still held
at the end is handed out, so that nothing that was measured is lost.
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
from pytest_mlms.redaction import redact_all
from pytest_mlms.report.old_runs import RUN_NAME, RunLock

__all__ = ["ResultsFile"]

FORMAT = 1
"""The format of the lines: raised when a field changes its meaning, not when one is added."""

_OUR_FILES = re.compile(rf"{RUN_NAME}|\.?latest.*|\.removed-.*")


class ResultsFile:
    """Appends lines to results.jsonl in a run's folder, which is made for the first one.

    ``error`` is why lines can't be written at the moment, or empty. ``unwritten`` are those lines.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.jsonl"
        self.error = ""
        self.unwritten: list[str] = []
        self.items = 0
        self._lock = RunLock(folder)

    def resume(self) -> None:
        """Cut off the line that was being written when the run was killed."""
        self._lock.acquire()
        try:
            with self.path.open("rb+") as file:
                end_of_lines = file.read().rfind(b"\n") + 1
                file.truncate(end_of_lines)
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"

    def append(self, item: Mapping[str, Any]) -> None:
        """Write an item's line; before the first one, the line of the run."""
        if self.items == 0:
            self.note("run", _about_run())
        self.items += 1
        self.note("item", item)

    def note(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write a line of this type."""
        self.unwritten.append(self._encode(kind, fields))
        self._flush()

    def finish(self, exit_status: int) -> None:
        """Write the last line, which a run that was killed does not have.

        Where the disk refuses it the run has failed, and the line that is handed out says so.
        """
        if self.items == 0:
            return
        self.note("end", self._end(exit_status))
        if self.error:
            self.unwritten[-1] = self._encode("end", self._end(exit_status or 1))

    def _end(self, exit_status: int) -> dict[str, int]:
        return {"exit_status": exit_status, "items": self.items}

    def _encode(self, kind: str, fields: Mapping[str, Any]) -> str:
        now = datetime.datetime.now(datetime.timezone.utc)
        line = {
            "format": FORMAT,
            "run": self.path.parent.name,
            "time": now.isoformat(timespec="milliseconds"),
            "type": kind,
            **fields,
        }
        return json.dumps(line, allow_nan=False)

    def _flush(self) -> None:
        """Write the lines that are held."""
        text = "".join(f"{line}\n" for line in self.unwritten)
        try:
            if not self.path.exists():
                _make_run_folder(self.path.parent)
                self._lock.acquire()
            _append(self.path, text.encode())
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"
        else:
            self.unwritten.clear()
            self.error = ""


def _about_run() -> dict[str, Any]:
    command = redact_all(sys.argv)
    return {"command": command, "python": sys.version, "plugin": pytest_mlms.__version__}


def _append(path: Path, data: bytes) -> None:
    """Append all of ``data``, or nothing where the disk takes only a part; raises OSError."""
    with path.open("ab", buffering=0) as file:
        size = file.tell()
        written = file.write(data)
        if written != len(data):
            file.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _make_run_folder(folder: Path) -> None:
    """Make the folder, keep it out of git, and have the link ``latest`` point to it."""
    folder.mkdir(parents=True, exist_ok=True)
    _ignore_in_git(folder.parent)
    link = folder.parent / f".latest-{folder.name}"
    with contextlib.suppress(OSError):  # some file systems have no links
        link.symlink_to(folder.name)
        os.replace(link, folder.parent / "latest")


def _ignore_in_git(results: Path) -> None:
    """Keep results out of git, unless their folder has other files that may be wanted there."""
    ignore = results / ".gitignore"
    if ignore.exists():
        return
    names = [path.name for path in results.iterdir()]
    if all(_OUR_FILES.fullmatch(name) for name in names):
        ignore.write_text("*\n")
