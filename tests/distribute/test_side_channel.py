"""The side channel, between two ends in one process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_mlms.distribute.messages import Heartbeat, ItemRetry
from pytest_mlms.distribute.side_channel import SideChannel, channel_of, is_remote
from tests.distribute.fakes import ChannelEnd, channel_pair


def test_a_message_arrives_at_the_handler_of_its_class() -> None:
    here, there = channel_pair()
    received: list[object] = []
    there.listen({ItemRetry: received.append, Heartbeat: received.append})
    assert here.send(ItemRetry(3, 2, "lost"))
    assert here.send(Heartbeat())
    assert received == [ItemRetry(3, 2, "lost"), Heartbeat()]
    assert isinstance(received[0], ItemRetry)


def test_any_message_is_a_sign_of_life() -> None:
    here, there = channel_pair()
    there.listen({Heartbeat: lambda message: None})
    assert there.last_message is None
    here.send(Heartbeat())
    assert there.last_message is not None


def test_the_end_of_the_connection_is_reported_and_sending_fails() -> None:
    first = ChannelEnd()
    second = ChannelEnd()
    first.other = second
    second.other = first
    ended: list[str] = []
    channel = SideChannel(second)
    channel.listen({}, [lambda: ended.append("receiver"), lambda: ended.append("client")])
    first.close()
    assert ended == ["receiver", "client"]
    assert not SideChannel(first).send(Heartbeat())


def test_only_a_worker_has_a_channel_and_only_a_remote_one_has_options() -> None:
    def config(**worker_input: Any) -> pytest.Config:
        return cast("pytest.Config", SimpleNamespace(workerinput=worker_input))

    controller = cast("pytest.Config", SimpleNamespace())
    assert channel_of(controller) is None
    assert not is_remote(controller)
    assert channel_of(config(mlms_channel="channel")) == "channel"
    assert not is_remote(config(mlms_channel="channel"))
    assert is_remote(config(mlms_channel="channel", mlms_options={}))
