"""The results file of a run: JSON lines, written as the items finish.

docs/results.md describes the lines; ``pytest_mlms.keep.results.item_result`` makes those of items.
A line that can't be written, as on a full disk, is held and tried again with the next one. What is
still held at the end is handed out, so that nothing that was measured is lost. A kill costs the
line that is being written, and a loss of power those of the last second.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest_mlms
from pytest_mlms.core.serialization import read_line, to_plain
from pytest_mlms.core.text import redact_all
from pytest_mlms.keep.results.run_line import FORMAT, Session
from pytest_mlms.show.report.provenance import job_of, revision_of
from pytest_mlms.show.report.run_folders import RUN_NAME, RunLock

_OUR_FILES = re.compile(rf"{RUN_NAME}|\.stacks|\.?latest.*|\.removed-.*|\.?history.*|\.portal")


_SYNC_SECONDS = 1.0  # between two times that the disk is waited for


class _Tail(NamedTuple):
    """The lines that are not written yet, and where in the file they begin.

    ``last`` has the fields of the line that came last, and ``items`` counts the lines of items. All
    of it is replaced in one step, so that Ctrl-C at any time neither loses nor repeats a line.
    """

    position: int
    lines: tuple[str, ...] = ()
    last: Mapping[str, Any] | None = None
    items: int = 0


class ResultsFile:
    """Appends lines to results.jsonl in a run's folder, which is made for the first one.

    ``root`` is the folder whose revision the run is of; without one, none is told. ``began`` is
    the time since the epoch when the session did, in s, else now. ``error`` is why lines can't be
    written at the moment, or empty.
    """

    def __init__(self, folder: Path, root: Path | None = None, began: float | None = None) -> None:
        self.path = folder / "results.jsonl"
        self._root = root
        self._began = _utc(time.time() if began is None else began)
        self.error = ""
        self._tail = _Tail(0)
        self._synced = -_SYNC_SECONDS
        self._lock = RunLock(folder)

    @property
    def unwritten(self) -> Sequence[str]:
        """The lines that can't be written at the moment."""
        return self._tail.lines

    @property
    def items(self) -> int:
        """The number of items that have a line."""
        return self._tail.items

    def has(self, fields: Mapping[str, Any]) -> bool:
        """Return whether the line that came last is that of these fields."""
        return self._tail.last is fields

    def resume(self) -> None:
        """Take the run, and cut off the line that was being written when it was killed.

        Raises RunInUse where another session has the run, and OSError.
        """
        self._lock.acquire()
        with self.path.open("rb+") as file:
            content = file.read()
            _, _, last = content.rpartition(b"\n")
            if read_line(last) is None:
                file.truncate(len(content) - len(last))
            else:  # only its end is missing
                file.write(b"\n")
            self._tail = _Tail(file.seek(0, os.SEEK_END))

    def close(self) -> None:
        """Let other sessions have the run."""
        self._lock.release()

    def append(self, item: Mapping[str, Any]) -> None:
        """Write an item's line; before the first one, the line of the run."""
        if self.items == 0:
            session = Session(
                began=self._began,
                command=tuple(redact_all(sys.argv)),
                python=sys.version,
                plugin=pytest_mlms.__version__,
                git=revision_of(self._root) if self._root else None,
                ci=job_of(),
            )
            self.note("run", to_plain(session))
        self.note("item", item)

    def note(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write a line of this type."""
        line = self._encode(kind, fields)
        tail = self._tail
        items = tail.items + 1 if kind == "item" else tail.items
        self._tail = _Tail(tail.position, (*tail.lines, line), fields, items)
        self._flush()

    def finish(self, exit_status: int) -> None:
        """Write the last line, which a run that was killed does not have.

        Where the disk refuses it the run has failed, and the line that is handed out says so.
        """
        if self.items == 0:
            return
        self._synced = -_SYNC_SECONDS
        self.note("end", self._end(exit_status))
        if self.error:
            last = self._encode("end", self._end(exit_status or 1))
            self._tail = self._tail._replace(lines=(*self.unwritten[:-1], last))

    def _end(self, exit_status: int) -> dict[str, int]:
        return {"exit_status": exit_status, "items": self.items}

    def _encode(self, kind: str, fields: Mapping[str, Any]) -> str:
        line = {
            "format": FORMAT,
            "run": self.path.parent.name,
            "time": _utc(time.time()),
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
            end = self._write(text.encode())
        except OSError as error:
            self.error = f"{self.path}: {error.strerror}"
        else:
            self._tail = self._tail._replace(position=end, lines=())
            self.error = ""

    def _write(self, data: bytes) -> int:
        """Write the lines whole, or nothing of them; return the end of the file.

        Raises OSError. After an OSError or Ctrl-C, the next call has the same lines and more; what
        is there of them is not written again.
        """
        with _open_to_append(self.path) as descriptor:
            end = os.lseek(descriptor, 0, os.SEEK_END)
            written = os.pread(descriptor, len(data), self._tail.position)
            if not data.startswith(written):  # other lines, by whoever does not see our lock
                written = b""
            _append(descriptor, data[len(written) :], end)
            now = time.monotonic()
            if now - self._synced >= _SYNC_SECONDS:
                os.fsync(descriptor)
                self._synced = now
            return os.lseek(descriptor, 0, os.SEEK_END)


@contextlib.contextmanager
def _open_to_append(path: Path) -> Iterator[int]:
    """Yield a descriptor of the file, which is made if need be; raises OSError, also at its end."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _append(descriptor: int, data: bytes, end: int) -> None:
    """Append all of ``data``, or nothing where the disk takes only a part; raises OSError."""
    if os.write(descriptor, data) != len(data):
        os.ftruncate(descriptor, end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _utc(seconds: float) -> str:
    """Return a time since the epoch as lines have it: ISO 8601, UTC."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.isoformat(timespec="milliseconds")


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
