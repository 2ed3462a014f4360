"""Messages of a worker whose form is another are refused, whatever they have."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.distribute.messages import MESSAGES, FileBegin, Heartbeat, WorkerAnnouncement
from pytest_mlms.distribute.side_channel import SideChannel
from tests.distribute.fakes import ChannelEnd

OFFER: dict[str, Any] = {
    "host": "h",
    "labels": {},
    "plugin": "1",
    "python": "3.11",
    "architecture": "x86_64",
    "memory": 1,
    "cores": 1,
    "devices": [],
    "interpreters": [],
    "engines": [],
    "frameworks": {"numpy": "2"},
    "stacks": ("a",),
}
DEVICE = {"name": "cuda:0", "kind": "x", "memory": 1, "locks": []}
MALFORMED: list[Any] = [
    (),
    "Heartbeat",
    (1,),
    ("Interrupt",),
    ("eval", "x"),
    ("Heartbeat", 1),
    ("FileBegin",),
    ("FileBegin", 1),
    ("WorkerAnnouncement", OFFER, [], {}),
    ("WorkerAnnouncement", {}, [], []),
    ("WorkerAnnouncement", {**OFFER, "labels": {1: "x"}}, [], []),
    ("WorkerAnnouncement", {**OFFER, "cores": True}, [], []),
    ("WorkerAnnouncement", {**OFFER, "memory": 1 << 64}, [], []),
    ("WorkerAnnouncement", {**OFFER, "devices": [{"name": "cuda:0"}]}, [], []),
    ("WorkerAnnouncement", {**OFFER, "devices": [{**DEVICE, "uuid": 1}]}, [], []),
    ("WorkerAnnouncement", OFFER, [{}], [0]),
    ("WorkerAnnouncement", OFFER, [], ["x"]),
]


def received_by(*messages: Any) -> tuple[list[object], list[str]]:
    """Return the messages that arrive at their handlers, and what is wrong with the others."""
    end = ChannelEnd()
    channel = SideChannel(end)
    taken: list[object] = []
    refused: list[str] = []
    kinds = (WorkerAnnouncement, FileBegin, Heartbeat)
    channel.listen(dict.fromkeys(kinds, taken.append), (), refused.append)
    for message in messages:
        channel._receive(message)
    return taken, refused


@pytest.mark.parametrize("message", MALFORMED)
def test_a_malformed_message_is_refused(message: Any) -> None:
    taken, refused = received_by(message)
    assert not taken
    assert len(refused) == 1


def test_messages_as_they_are_declared_arrive() -> None:
    announced: Any = ("WorkerAnnouncement", {**OFFER, "devices": [DEVICE]}, [], [-1])
    taken, refused = received_by(announced, ("Heartbeat",), ("FileBegin", "items/x"))
    assert [type(message).__name__ for message in taken] == [
        "WorkerAnnouncement",
        "Heartbeat",
        "FileBegin",
    ]
    assert not refused
    assert all(name == kind.__name__ for name, kind in MESSAGES.items())
