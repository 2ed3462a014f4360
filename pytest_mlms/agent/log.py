"""A process's output to a file that can't fill the disk.

Its beginning, its end, and how much is left out between.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path
from typing import IO

__all__ = ["LogFile"]

_HEAD = 1 << 20  # bytes
_TAIL = 1 << 18


class LogFile:
    """Drains a pipe in a thread, so that the process never blocks on it.

    ``path`` is complete after close().
    """

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.path = path
        self._stream = stream
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._held = self._dropped = 0
        self._fault = ""
        self._thread = threading.Thread(target=self._drain, daemon=True)

    @classmethod
    def drain(cls, stream: IO[bytes], path: Path) -> LogFile:
        """Begin to drain ``stream`` into ``path``."""
        log = cls(stream, path)
        log._thread.start()
        return log

    def tail(self, lines: int = 15) -> list[str]:
        """Return the last lines so far."""
        self._thread.join(0.2)  # a process that has just died has its last words in the pipe
        text = (bytes(self._head[-_TAIL:]) + b"".join(self._tail)).decode(errors="replace")
        last = text.splitlines()[-lines:]
        return [*last, f"(the log is not complete: {self._fault})"] if self._fault else last

    def close(self) -> None:
        """Write what is held back.

        The process has ended, but a stray child may still hold the pipe.
        """
        self._thread.join(5.0)
        if not self._stream.closed and not self._thread.is_alive():
            self._stream.close()
        if self._held:
            note = f"\n… {self._dropped:,} bytes left out …\n".encode() if self._dropped else b""
            self._append(note + b"".join(self._tail))
            self._held = 0

    def _drain(self) -> None:
        while data := os.read(self._stream.fileno(), 1 << 16):
            room = _HEAD - len(self._head)
            if room > 0:
                self._head += data[:room]
                self._append(data[:room])
            if len(data) > room:
                self._hold(data[max(room, 0) :])

    def _hold(self, data: bytes) -> None:
        self._tail.append(data)
        self._held += len(data)
        while self._held - len(self._tail[0]) >= _TAIL:
            self._dropped += len(self._tail[0])
            self._held -= len(self._tail.popleft())

    def _append(self, data: bytes) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write(data)
        except (
            OSError
        ) as error:  # a full disk must not stop the process; the reader of the log is told
            self._fault = str(error)
