"""Transfer of the files of results from a remote worker to the controller's folder of the run.

Files are sent in chunks, checked by their digest, and never held in memory whole. A worker may
write those of its own items and agents only, and neither more than ``MOST`` nor the last part of
the disk.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_mlms.core.recorded import is_file_of_run
from pytest_mlms.distribute.messages import FileBegin, FileChunk, FileEnd, FileStored
from pytest_mlms.distribute.side_channel import Handlers, SideChannel

MOST = 64 << 30
"""The bytes that the files of a worker may have together."""

_CHUNK = 1 << 18  # bytes
_BLOCK = 1 << 14  # bytes that a file counts beside its content, as disks have so many files
_RESERVE, _RESERVED_SHARE = 1 << 30, 50
"""The room that files of workers leave on the disk: a GiB, or a fiftieth of a smaller disk."""
_MOST_LOST = 10_000  # files, of which the reasons are kept


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
        self.size = _BLOCK
        self._path = path
        self._partial = path.with_name(f"{path.name}.part")
        self._sha256 = hashlib.sha256()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._partial.open("wb")

    def write(self, data: bytes) -> None:
        _check_room(self._file.fileno(), len(data))
        self.size += len(data)
        self._sha256.update(data)
        self._file.write(data)

    def finish(self, sha256: str) -> bool:
        """Give the file its name; return False where its digest is another one."""
        self._file.close()
        if sha256 != self._sha256.hexdigest():
            return False
        with contextlib.suppress(FileNotFoundError):  # such as a log that has grown
            self.size -= _BLOCK + self._path.stat().st_size
        os.replace(self._partial, self._path)
        return True

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)


class ResultReceiver:
    """The controller's end, for one worker; ``folder`` is the run's.

    ``is_own`` says whether a path is one of the worker's items and agents. ``lost`` has the reason
    for each file that did not arrive, by its path in the folder.
    """

    def __init__(self, folder: Path, channel: SideChannel, is_own: Callable[[str], bool]) -> None:
        self.lost: dict[str, str] = {}
        self._folder = folder
        self._channel = channel
        self._is_own = is_own
        self._stored = 0  # bytes
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
            if reason := self._reason_of_loss(path):
                del artifacts[name]
                lost[name] = reason
        logs = result.get("logs") or ()
        reasons = {path: self._reason_of_loss(path) for path in logs}
        lost.update({path: reason for path, reason in reasons.items() if reason})
        if logs:
            result["logs"] = [path for path in logs if not reasons[path]]

    def _reason_of_loss(self, path: str) -> str:
        """Return why a file of a result isn't there; "" where it is."""
        reason = self.lost.pop(path, "") or self._refusal(path)
        return reason or ("" if (self._folder / path).is_file() else "it did not arrive")

    def _refusal(self, path: str) -> str:
        """Return why a worker may not write a file of this path, which it chose itself."""
        if not is_file_of_run(path):
            return "its path leads out of the items of the run"
        return "" if self._is_own(path) else "it is a file of another item or worker"

    def _excess(self, size: int) -> str:
        """Return why so many bytes more are too many; "" where they aren't."""
        most = f"its worker's files have more than {MOST >> 30} GiB"
        return most if self._stored + size > MOST else ""

    def close(self) -> None:
        """Remove the file that the worker had not sent whole, because it is gone."""
        if self._incoming:
            self._incoming.discard()
            self._incoming = None

    def _begin(self, message: FileBegin) -> None:
        if self._incoming is not None:
            self._lose("another file came before its end")
        self._path = message.path
        if refusal := self._refusal(message.path) or self._excess(_BLOCK):
            self._lose(refusal)
            return
        try:
            self._incoming = _IncomingFile(self._folder / message.path)
        except OSError as error:
            self._lose(_no_room(error))

    def _write(self, message: FileChunk) -> None:
        if self._incoming is None:
            return
        if excess := self._excess(self._incoming.size + len(message.data)):
            self._lose(excess)
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
            self._stored += self._incoming.size
            self._incoming = None
            self._channel.send(FileStored(self._path))
        else:
            self._lose("it was damaged on its way")

    def _lose(self, reason: str) -> None:
        if len(self.lost) < _MOST_LOST:
            self.lost[self._path] = reason
        self.close()


def _check_room(descriptor: int, size: int) -> None:
    """Raise OSError where so many bytes more would fill the disk of an open file."""
    disk = os.fstatvfs(descriptor)
    reserve = min(_RESERVE, disk.f_blocks * disk.f_frsize // _RESERVED_SHARE)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < size + reserve:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _no_room(error: OSError) -> str:
    return f"{error.strerror}; make room"
