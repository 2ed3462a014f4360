"""Hand-written fakes of workers and of the channels to them, all in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from pytest_mlms.distribute.messages import Message, WorkerAnnouncement
from pytest_mlms.distribute.notices import Notices
from pytest_mlms.distribute.side_channel import SideChannel
from pytest_mlms.distribute.workers import Connection, WorkerState
from pytest_mlms.provide.host.capabilities import Capabilities
from pytest_mlms.provide.host.matching import Needs
from tests.provide.host import test_matching


class FakeNode:
    """A worker as xdist has it.

    ``received`` are the items that it was sent, without sentinel items, ``asked_back`` those that
    it is to give back.
    """

    def __init__(self, name: str = "gw0") -> None:
        self.gateway = SimpleNamespace(id=name, spec=SimpleNamespace(ssh=None))
        self.shutting_down = False
        self.received: list[int] = []
        self.asked_back: list[Sequence[int]] = []

    def send_runtest_some(self, indices: Sequence[int]) -> None:
        self.received += indices[::2]

    def send_steal(self, indices: Sequence[int]) -> None:
        self.asked_back.append(indices)

    def shutdown(self) -> None:
        self.shutting_down = True


class RecordingChannel(SideChannel):
    """A side channel that keeps the messages that are sent."""

    def __init__(self) -> None:
        super().__init__(None)
        self.sent: list[Message] = []

    def send(self, message: Message) -> bool:
        self.sent.append(message)
        return True


class ChannelEnd:
    """One end of an execnet channel, both of whose ends are in this process."""

    def __init__(self) -> None:
        self.other: ChannelEnd
        self.callback: Callable[[Any], None]
        self.is_closed = False

    def setcallback(self, callback: Callable[[Any], None], endmarker: object) -> None:
        self.callback = callback

    def send(self, message: Any) -> None:
        if self.is_closed:
            raise OSError("closed")
        self.other.callback(message)

    def close(self) -> None:
        self.is_closed = True
        self.other.callback(None)


def channel_pair() -> tuple[SideChannel, SideChannel]:
    """Return both ends of a side channel."""
    first = ChannelEnd()
    second = ChannelEnd()
    first.other = second
    second.other = first
    return SideChannel(first), SideChannel(second)


def make_notices(terminal: object = None) -> Notices:
    """Return notices on a terminal, or without one."""
    plugins = SimpleNamespace(getplugin=lambda name: terminal)
    config: Any = SimpleNamespace(pluginmanager=plugins, option=SimpleNamespace(verbose=0))
    return Notices(config)


def make_capabilities(host: str = "a", **changes: Any) -> Capabilities:
    """Return what a host with a CPU of two cores and a GPU offers."""
    others: dict[str, Any] = {"interpreters": [], "engines": [], "stacks": []}
    others.update(changes)
    found: Capabilities = test_matching.host(host, **others)
    return found


def make_needs(**changes: Any) -> Needs:
    """Return the needs of an item on the CPU that does not hold its device alone."""
    needs = {"device": "cpu", "exclusive": False, "visit": 0}
    found: Needs = test_matching.needs(**{**needs, **changes})
    return found


def make_worker(
    host: str = "a",
    name: str = "gw0",
    announcement: WorkerAnnouncement | None = None,
) -> WorkerState:
    """Return a worker that has announced its host, and has not collected yet."""
    worker = WorkerState(Connection(FakeNode(name), RecordingChannel()))
    worker.announcement = announcement or WorkerAnnouncement(make_capabilities(host), [], [])
    return worker


def make_ready_worker(host: str = "a", name: str = "gw0") -> WorkerState:
    """Return a worker that has collected."""
    worker = make_worker(host, name)
    worker.collected = True
    return worker
