"""The side channel: messages between the controller and a worker, besides xdist's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import pytest

from pytest_mlms.distribute.message_types import misfit, types_of
from pytest_mlms.distribute.messages import MESSAGES, Message

CHANNEL_INPUT = "mlms_channel"
"""The key of the channel in the input that xdist gives a worker."""

Handler: TypeAlias = Callable[[Any], None]
Handlers: TypeAlias = Mapping[type, Handler]
Callback: TypeAlias = Callable[[], None]


_SHOWN = 80  # characters of a name that another process chose


def _raise(problem: str) -> None:
    raise ValueError(f"the other end sent {problem}")


class SideChannel:
    """One end of the side channel, on top of an execnet channel.

    ``last_message`` is the monotonic time at which the last message came, None before the first.
    Any message is a sign of life, not only heartbeats.
    """

    def __init__(self, channel: Any) -> None:
        self.last_message: float | None = None
        self._channel = channel
        self._handlers: Handlers = {}
        self._refuse: Callable[[str], None] = _raise
        self._on_close: list[Callback] = []

    def listen(
        self,
        handlers: Handlers,
        on_close: Iterable[Callback] = (),
        refuse: Callable[[str], None] = _raise,
    ) -> None:
        """Begin to receive.

        Each message is handed to the handler of its class, and the end of the connection to
        ``on_close``, in the thread of the gateway that receives. ``refuse`` is called with what is
        wrong with a message that has no handler, or another form than its class.
        """
        self._handlers = handlers
        self._refuse = refuse
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
        message = self._message(received)
        if isinstance(message, str):
            self._refuse(message)
        else:
            self._handlers[type(message)](message)

    def _message(self, received: Any) -> Message | str:
        """Return the message that was received, or the error in it."""
        name, *fields = received if isinstance(received, tuple) and received else ("nothing",)
        kind: Any = MESSAGES.get(name) if isinstance(name, str) else None
        if kind is None or kind not in self._handlers:
            return "a message of an unknown kind"
        types = types_of(kind)
        if len(fields) != len(types):
            return f"{name} with {len(fields)} fields"
        for (field, of_field), value in zip(types.items(), fields, strict=True):
            wrong = misfit(value, of_field, field)
            if wrong:
                return f"{name} whose {wrong[:_SHOWN]!r} is of another type"
        message: Message = kind(*fields)
        return message


def is_remote(config: pytest.Config) -> bool:
    """Return whether this is a worker that does not share the files of its controller."""
    return "mlms_options" in getattr(config, "workerinput", {})


def channel_of(config: pytest.Config) -> Any:
    """Return the execnet channel that the controller gave this worker, None elsewhere."""
    worker_input: dict[str, Any] = getattr(config, "workerinput", {})
    return worker_input.get(CHANNEL_INPUT)
