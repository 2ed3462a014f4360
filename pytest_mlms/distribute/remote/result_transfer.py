"""Transfer of the files of results from a remote worker to the controller's folder of the run.

Files are sent in chunks, checked by their digest, and never held in memory whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.distribute.messages import FileBegin, FileChunk, FileEnd, FileStored
from pytest_mlms.distribute.side_channel import Handlers, SideChannel
from pytest_mlms.recorded import is_file_of_run

__all__ = ["ResultReceiver", "ResultSender"]

_CHUNK = 1 << 18  # bytes


class ResultSender:
    """The worker's end; ``folder`` is its own folder of the run.

    A file that the controller has stored is removed here. Logs grow while agents live, so they are
    removed at the end.
    """

    def __init__(self, folder: Path, channel: SideChannel) -> None:
        self._folder = folder
        self._channel = channel
        self._log_sizes: dict[str, int] = {}
        self._stored_logs: set[str] = set()

    @property
    def handlers(self) -> Handlers:
        """The handlers of the controller's messages."""
        return {FileStored: self._note_stored}

    def send(self, result: Mapping[str, Any]) -> None:
        """Send the files that a result names, of the logs those that have grown."""
        for path in result.get("artifacts", {}).values():
            self._send_file(path)
        for path in result.get("logs", ()):
            self._send_log(path)

    def finish(self) -> None:
        """Send the logs that have grown, and remove those that the controller has stored."""
        for path in list(self._log_sizes):
            self._send_log(path)
        for path in list(self._stored_logs):
            self._remove(path)

    def _send_log(self, path: str) -> None:
        try:
            size = (self._folder / path).stat().st_size
        except OSError:
            return
        if self._log_sizes.get(path) != size:
            self._log_sizes[path] = size
            self._stored_logs.discard(path)
            self._send_file(path)

    def _send_file(self, path: str) -> None:
        self._channel.send(FileBegin(path))
        sha256 = hashlib.sha256()
        try:
            with (self._folder / path).open("rb") as file:
                while data := file.read(_CHUNK):
                    sha256.update(data)
                    self._channel.send(FileChunk(data))
        except OSError as error:
            self._channel.send(FileEnd("", f"could not be read on its host: {error.strerror}"))
        else:
            self._channel.send(FileEnd(sha256.hexdigest(), ""))

    def _note_stored(self, message: FileStored) -> None:
        if message.path in self._log_sizes:
            self._stored_logs.add(message.path)
        else:
            self._remove(message.path)

    def _remove(self, path: str) -> None:
        (self._folder / path).unlink(missing_ok=True)


class _IncomingFile:
    """A file that is being received; it gets its name when it is complete.

    All methods raise OSError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f"{path.name}.part")
        self._sha256 = hashlib.sha256()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._partial.open("wb")

    def write(self, data: bytes) -> None:
        self._sha256.update(data)
        self._file.write(data)

    def finish(self, sha256: str) -> bool:
        """Give the file its name; return False where it is not what was sent."""
        self._file.close()
        if sha256 != self._sha256.hexdigest():
            return False
        os.replace(self._partial, self._path)
        return True

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)


class ResultReceiver:
    """The controller's end, for one worker; ``folder`` is that of the run.

    ``lost`` has the reason for each file that did not arrive, by its path in the folder.
    """

    def __init__(self, folder: Path, channel: SideChannel) -> None:
        self.lost: dict[str, str] = {}
        self._folder = folder
        self._channel = channel
        self._path = ""
        self._incoming: _IncomingFile | None = None

    @property
    def handlers(self) -> Handlers:
        """The handlers of the worker's messages."""
        return {FileBegin: self._begin, FileChunk: self._write, FileEnd: self._end}

    def note_lost_files(self, result: dict[str, Any]) -> None:
        """Move the files of a result that did not arrive to its ``artifacts_lost``."""
        artifacts = result.get("artifacts") or {}
        lost = result["artifacts_lost"] = result.get("artifacts_lost") or {}
        for name, path in list(artifacts.items()):
            if path in self.lost:
                del artifacts[name]
                lost[name] = self.lost.pop(path)
        logs = result.get("logs") or []
        for path in list(logs):
            if path in self.lost:
                logs.remove(path)
                lost[path] = self.lost.pop(path)

    def close(self) -> None:
        """Remove the file that the worker had not sent whole, because it is gone."""
        if self._incoming:
            self._incoming.discard()
            self._incoming = None

    def _begin(self, message: FileBegin) -> None:
        if self._incoming is not None:
            self._lose("another file came before its end")
        self._path = message.path
        if not _is_writable(message.path):
            self._lose("its path leads out of the items of the run")
            return
        try:
            self._incoming = _IncomingFile(self._folder / message.path)
        except OSError as error:
            self._lose(_no_room(error))

    def _write(self, message: FileChunk) -> None:
        if self._incoming is None:
            return
        try:
            self._incoming.write(message.data)
        except OSError as error:
            self._lose(_no_room(error))

    def _end(self, message: FileEnd) -> None:
        if self._incoming is None:
            return
        if message.error:
            self._lose(message.error)
            return
        try:
            is_whole = self._incoming.finish(message.sha256)
        except OSError as error:
            self._lose(_no_room(error))
            return
        if is_whole:
            self._incoming = None
            self._channel.send(FileStored(self._path))
        else:
            self._lose("it was damaged on its way")

    def _lose(self, reason: str) -> None:
        self.lost[self._path] = reason
        self.close()


def _is_writable(path: str) -> bool:
    """Return whether a worker may write a file of this path, which it chose itself."""
    return isinstance(path, str) and is_file_of_run(path)


def _no_room(error: OSError) -> str:
    return f"{error.strerror}; make room"
