"""Files of items from a remote worker into the controller's folder.

In chunks, checked, never held in memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pytest_mlms.distribute.messages import Handler, Link

__all__ = ["ResultReceiver", "ResultSender"]

_CHUNK = 1 << 18  # bytes
_OURS = ("items", "agents")  # the folders of a run that are filled from elsewhere


class ResultSender:
    """The worker's end: ``folder`` is its own copy of the run's folder, ``link`` is set once it is
    there.

    What the controller has whole is removed here; logs, which grow, at the end.
    """

    link: Link

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes: dict[str, int] = {}
        self._kept: set[str] = set()

    @property
    def handlers(self) -> dict[str, Handler]:
        """What the messages of the controller mean here."""
        return {"kept": self._note_kept}

    def send(self, result: Mapping[str, Any]) -> None:
        """Send the files that a result names."""
        for path in result.get("artifacts", {}).values():
            self._stream(path)
        for path in result.get("logs", ()):
            with contextlib.suppress(OSError):
                size = (self._folder / path).stat().st_size
                if self._sizes.get(path) != size:
                    self._sizes[path] = size
                    self._kept.discard(path)
                    self._stream(path)

    def finish(self) -> None:
        """Send what logs have become, and remove those that are whole on the controller."""
        self.send({"logs": list(self._sizes)})
        for path in list(self._kept):
            (self._folder / path).unlink(missing_ok=True)

    def _note_kept(self, path: str) -> None:
        if path in self._sizes:
            self._kept.add(path)
        else:
            (self._folder / path).unlink(missing_ok=True)

    def _stream(self, path: str) -> None:
        try:
            with (self._folder / path).open("rb") as file:
                self.link.send("file", path)
                sha256 = hashlib.sha256()
                while data := file.read(_CHUNK):
                    sha256.update(data)
                    self.link.send("data", data)
        except OSError as error:
            self.link.send("end", "", f"could not be read on its host: {error.strerror}")
        else:
            self.link.send("end", sha256.hexdigest(), "")


class ResultReceiver:
    """The controller's end, for one worker; ``lost`` says of each file that is not here why.

    ``link`` is set once it is there.
    """

    link: Link

    def __init__(self, folder: Path) -> None:
        self.lost: dict[str, str] = {}
        self._folder = folder
        self._path = ""
        self._file: IO[bytes] | None = None
        self._sha256 = hashlib.sha256()

    @property
    def handlers(self) -> dict[str, Handler]:
        """What the messages of a worker mean here."""
        return {"file": self._begin, "data": self._write, "end": self._end}

    def complete(self, result: dict[str, Any]) -> None:
        """Say in a result which of its files did not arrive."""
        for name, path in list(result.get("artifacts", {}).items()):
            if path in self.lost:
                del result["artifacts"][name]
                result["artifacts_lost"][name] = self.lost.pop(path)
        for path in list(result.get("logs", ())):
            if path in self.lost:
                result["logs"].remove(path)
                result["artifacts_lost"][path] = self.lost.pop(path)

    def close(self) -> None:
        """The worker is gone: what it had not sent whole is nothing."""
        if self._file:
            self._file.close()
            self._partial.unlink(missing_ok=True)
            self._file = None

    @property
    def _partial(self) -> Path:
        return self._folder / f"{self._path}.part"

    def _begin(self, path: str) -> None:
        self._path, self._sha256 = path, hashlib.sha256()
        inside = PurePosixPath(path)
        if (
            inside.parts[:1] not in [(name,) for name in _OURS]
            or ".." in inside.parts
            or "\0" in path
        ):
            self._fail("its path leads out of the items of the run")
            return
        try:
            self._partial.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._partial.open("wb")
        except OSError as error:
            self._fail(f"{error.strerror}; make room")

    def _write(self, data: bytes) -> None:
        if self._file:
            self._sha256.update(data)
            try:
                self._file.write(data)
            except OSError as error:
                self._fail(f"{error.strerror}; make room")

    def _end(self, sha256: str, fault: str) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
            if fault or sha256 != self._sha256.hexdigest():
                self._fail(fault or "it was damaged on its way")
                return
            os.replace(self._partial, self._folder / self._path)
            self._file = None
        except OSError as error:
            self._fail(f"{error.strerror}; make room")
        else:
            self.link.send("kept", self._path)

    def _fail(self, why: str) -> None:
        self.lost[self._path] = why
        if self._file:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):
                self._partial.unlink(missing_ok=True)
            self._file = None
