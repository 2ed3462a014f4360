"""The pipes to and from an agent, with a deadline."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import subprocess
import time
from collections.abc import Iterable
from typing import IO, Any

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
