"""A file for a process's output, of limited size: the beginning, the end, and a note between."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pytest_mlms.core.errors import AgentError

_HEAD = 1 << 20  # bytes
_TAIL = 1 << 18
_READ = 1 << 16


class LogFile:
    """Drains a pipe in a thread, so that the process never waits for it.

    The beginning is written to ``path`` as it comes. The end is held in memory until close().
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.path = path
        self._stream = stream
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped_bytes = 0
        self._error = ""
        self._thread = threading.Thread(target=self._drain, daemon=True)

    @classmethod
    def drain(cls, stream: IO[bytes], path: Path) -> LogFile:
        """Begin to drain ``stream`` into ``path``."""
        log = cls(stream, path)
        log._thread.start()
        return log

    def tail(self, lines: int = 15) -> list[str]:
        """Return the last lines so far."""
        self._thread.join(0.2)  # the pipe may still have the last lines of a process that died
        data = bytes(self._head[-_TAIL:]) + b"".join(self._tail)
        last = data.decode(errors="replace").splitlines()[-lines:]
        if self._error:
            last.append(f"(the log is not complete: {self._error})")
        return last

    def close(self) -> None:
        """Write the end of the output.

        The process has ended, but a child that it left behind may still hold the pipe.
        """
        self._thread.join(5.0)
        if not self._stream.closed and not self._thread.is_alive():
            self._stream.close()
        if not self._tail_bytes:
            return
        if self._dropped_bytes:
            note = f"\n… {self._dropped_bytes:,} bytes left out …\n"
            self._append(note.encode())
        self._append(b"".join(self._tail))
        self._tail_bytes = 0

    def _drain(self) -> None:
        while True:
            data = os.read(self._stream.fileno(), _READ)
            if not data:
                return
            room = max(0, _HEAD - len(self._head))
            head = data[:room]
            tail = data[room:]
            if head:
                self._head += head
                self._append(head)
            if tail:
                self._hold(tail)

    def _hold(self, data: bytes) -> None:
        """Hold the end in memory, and drop what is no longer a part of it."""
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= _TAIL:
            dropped = len(self._tail.popleft())
            self._tail_bytes -= dropped
            self._dropped_bytes += dropped

    def _append(self, data: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(data)
        except OSError as error:  # a full disk must not stop the process
            self._error = str(error)


@contextlib.contextmanager
def temporary_log(prefix: str) -> Iterator[Path]:
    """Yield the path of an agent's log in a folder whose name begins with ``prefix``.

    The folder is kept where an AgentError ends the context, as that names the log.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    is_kept = False
    try:
        yield folder / "agent.log"
    except AgentError:
        is_kept = True
        raise
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
