"""The pipes to and from an agent, with a deadline, and the log of what its framework prints."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from pytest_mlms.core.errors import AgentError, MlmsError

_PIPE_BYTES = 1 << 20
_READ_BYTES = 1 << 16
_POLL_SECONDS = 0.5  # between two looks at whether the process still runs


class Channel:
    """Reads and writes frames without waiting past ``deadline``, in seconds of time.monotonic().

    Raises TimeoutError at the deadline, and EOFError where the process has ended.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], requests: IO[bytes], replies: IO[bytes]
    ) -> None:
        self.deadline = 0.0
        self._process = process
        self._requests = requests
        self._replies = replies
        self._unread = bytearray()
        for pipe in (requests, replies):
            os.set_blocking(pipe.fileno(), False)
            with contextlib.suppress(OSError, AttributeError):  # larger pipes exist on Linux only
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def closed(self) -> bool:
        """True if the pipes are closed."""
        return self._requests.closed

    def close(self) -> None:
        """Close both pipes."""
        self._requests.close()
        self._replies.close()

    def check_deadline(self) -> None:
        """Raise TimeoutError after the deadline, also where there is always more to read."""
        if time.monotonic() >= self.deadline:
            raise TimeoutError

    def write(self, buffers: Iterable[Any]) -> None:
        """Send the buffers of a frame."""
        for buffer in buffers:
            view = memoryview(buffer)
            while view:
                sent = self._send(view)
                view = view[sent:]

    def readline(self, limit: int) -> bytes:
        """Return the next line, or ``limit`` bytes and more of a line that is longer."""
        end = self._unread.find(b"\n")
        while end < 0 and len(self._unread) < limit:
            searched = len(self._unread)
            self._read_more()
            end = self._unread.find(b"\n", searched)
        length = len(self._unread) if end < 0 else end + 1
        return self._take(length)

    def readinto(self, view: memoryview) -> int:
        """Fill a part of ``view`` and return its length in bytes; 0 where the channel ends."""
        if not self._unread:
            return self._receive(view)
        count = min(len(view), len(self._unread))
        view[:count] = self._take(count)
        return count

    def _take(self, count: int) -> bytes:
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def _read_more(self) -> None:
        data = bytearray(_READ_BYTES)
        count = self._receive(memoryview(data))
        if count == 0:
            raise EOFError
        self._unread += data[:count]

    def _send(self, view: memoryview) -> int:
        while True:
            try:
                return os.write(self._requests.fileno(), view)
            except BlockingIOError:
                self._wait(self._requests, selectors.EVENT_WRITE)

    def _receive(self, view: memoryview) -> int:
        while True:
            try:
                return os.readv(self._replies.fileno(), [view])
            except BlockingIOError:
                self._wait(self._replies, selectors.EVENT_READ)

    def _wait(self, pipe: IO[bytes], event: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, event)
            while not selector.select(self._next_wait()):
                has_ended = self._process.poll() is not None
                # A child of a dead process may still hold the pipe open.
                if has_ended and not selector.select(0):
                    raise EOFError
                self.check_deadline()

    def _next_wait(self) -> float:
        left = self.deadline - time.monotonic()
        return max(0.0, min(left, _POLL_SECONDS))


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

    The folder is kept where an AgentError ends the context, or another error that names the log.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    is_kept = False
    try:
        yield folder / "agent.log"
    except MlmsError as error:
        is_kept = isinstance(error, AgentError) or str(folder) in str(error)
        raise
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)
