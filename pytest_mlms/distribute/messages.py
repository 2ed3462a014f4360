"""The side channel between the controller and a worker.

Tuples of plain values, the first of which is their kind.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["INPUT", "Handler", "Link", "Message", "is_remote", "side_channel"]

INPUT = "mlms_channel"
"""The key of the channel in a worker's input."""

Message = tuple[Any, ...]
Handler = Callable[..., None]

# From a worker: host (capabilities), items (table, places), beat, interrupted (result); of a remote
# one also want (manifest, source) and give, and file (path), data (bytes), end (sha256, fault).
# From the controller: refuse (index, reason, mode), again (index, facts), interrupt; to a remote
# one also have (digest, name), bytes, whole, refused (reason), kept (path).


class Link:
    """One end: what arrives is handed to the handler of its kind, in the gateway's receiving
    thread.
    """

    def __init__(self, channel: Any, handlers: dict[str, Handler], *gone: Handler) -> None:
        self._channel = channel
        self._handlers = handlers
        self._gone = gone
        self.heard: float | None = (
            None  # when the last message came; files and answers show life as beats do
        )
        channel.setcallback(self._receive, endmarker=None)

    def send(self, kind: str, *fields: Any) -> bool:
        """Send a message; return False where the other end is gone, which xdist reports in its own
        way.
        """
        with contextlib.suppress(OSError):
            self._channel.send((kind, *fields))
            return True
        return False

    def _receive(self, message: Message | None) -> None:
        self.heard = time.monotonic()
        if message is None:
            for handler in self._gone:
                handler()
        else:
            self._handlers[message[0]](*message[1:])


def is_remote(config: pytest.Config) -> bool:
    """Whether this is a worker that does not share its controller's files."""
    return "mlms_options" in getattr(config, "workerinput", {})


def side_channel(config: pytest.Config) -> Any:
    """Return the channel that the controller gave this worker, None elsewhere."""
    worker: dict[str, Any] = getattr(config, "workerinput", {})
    return worker.get(INPUT)
