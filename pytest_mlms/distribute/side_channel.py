"""The side channel: messages between the controller and a worker, besides those of xdist."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import pytest

from pytest_mlms.distribute.messages import MESSAGES, Message

__all__ = ["CHANNEL_INPUT", "Handler", "Handlers", "SideChannel", "channel_of", "is_remote"]

CHANNEL_INPUT = "mlms_channel"
"""The key of the channel in the input that xdist gives a worker."""

Handler: TypeAlias = Callable[[Any], None]
Handlers: TypeAlias = Mapping[type, Handler]
Callback: TypeAlias = Callable[[], None]


class SideChannel:
    """One end of the side channel, on top of an execnet channel.

    ``last_message`` is the monotonic time at which the last message came, None before the first.
    Any message is a sign of life, not only heartbeats.
    """

    def __init__(self, channel: Any) -> None:
        self.last_message: float | None = None
        self._channel = channel
        self._handlers: Handlers = {}
        self._on_close: list[Callback] = []

    def listen(self, handlers: Handlers, on_close: Iterable[Callback] = ()) -> None:
        """Begin to receive.

        Each message is handed to the handler of its class, and the end of the connection to
        ``on_close``, in the thread of the gateway that receives.
        """
        self._handlers = handlers
        self._on_close = list(on_close)
        self._channel.setcallback(self._receive, endmarker=None)

    def send(self, message: Message) -> bool:
        """Send a message; return False where the other end is gone, which xdist reports itself."""
        name = type(message).__name__
        try:
            self._channel.send((name, *message))
        except OSError:
            return False
        return True

    def _receive(self, received: tuple[Any, ...] | None) -> None:
        self.last_message = time.monotonic()
        if received is None:
            for close in self._on_close:
                close()
            return
        name, *fields = received
        kind = MESSAGES[name]
        handle = self._handlers[kind]
        handle(kind(*fields))


def is_remote(config: pytest.Config) -> bool:
    """Return whether this is a worker that does not share the files of its controller."""
    return "mlms_options" in getattr(config, "workerinput", {})


def channel_of(config: pytest.Config) -> Any:
    """Return the execnet channel that the controller gave this worker, None elsewhere."""
    worker_input: dict[str, Any] = getattr(config, "workerinput", {})
    return worker_input.get(CHANNEL_INPUT)
