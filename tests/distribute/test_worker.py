"""The worker's plugin, with a fake of xdist's interactor."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.distribute.messages import Interrupt, InterruptedResult, ItemRefusal, ItemRetry
from pytest_mlms.distribute.side_channel import SideChannel
from pytest_mlms.distribute.worker import WorkerSide
from tests.distribute.fakes import channel_pair


class FakeInteractor:
    """xdist's WorkerInteractor, at item 0, with ``waiting`` behind it."""

    def __init__(self, waiting: list[int]) -> None:
        self.item_index = 0
        self.nextitem_index: int | None = 0
        self.session = SimpleNamespace(items=["a", "b", "sentinel"])
        self.torun = SimpleNamespace(get=lambda: waiting.pop(0))
        self.ran: list[int | None] = []

    def run_one_test(self) -> None:
        self.ran.append(self.nextitem_index)
        self.nextitem_index = self.torun.get()


class Ends:
    """A worker's plugin, and the controller's end of its channel."""

    def __init__(self, waiting: list[int]) -> None:
        self.interactor = FakeInteractor(waiting)
        self.received: list[object] = []
        self.controller: SideChannel
        self.controller, channel = channel_pair()
        self.controller.listen({InterruptedResult: self.received.append})
        plugins = SimpleNamespace(get_plugins=lambda: [object(), self.interactor])
        config: Any = SimpleNamespace(pluginmanager=plugins)
        self.side = WorkerSide(config, channel, sender=None)
        self.side.listen(artifacts=None)
        self.side._ended.set()  # no heartbeats


@pytest.fixture
def ends() -> Ends:
    return Ends(waiting=[])


ITEM: Any = None


@pytest.mark.parametrize(
    ("outcome", "error"),
    [("skip", pytest.skip.Exception), ("fail", pytest.fail.Exception), ("error", MlmsError)],
)
def test_a_refused_item_is_reported_as_the_controller_wants(
    ends: Ends, outcome: Any, error: type[BaseException]
) -> None:
    ends.controller.send(ItemRefusal(0, "no host has a GPU", outcome))
    with pytest.raises(error, match="no host has a GPU"):
        ends.side.pytest_runtest_setup(ITEM)
    ends.interactor.item_index = 1
    ends.side.pytest_runtest_setup(ITEM)


def test_a_result_says_that_its_item_was_run_before(ends: Ends) -> None:
    ends.controller.send(ItemRetry(0, 2, "gw1 was lost"))
    report: Any = SimpleNamespace(mlms={"nodeid": "a"})
    ends.side.pytest_runtest_logreport(report)
    assert report.mlms == {"nodeid": "a", "attempt": 2, "earlier": "gw1 was lost"}


def test_the_result_of_an_interrupted_item_is_sent(ends: Ends) -> None:
    ends.side.add({"nodeid": "a"})
    assert ends.received == [InterruptedResult({"nodeid": "a"})]


def test_the_sentinel_item_is_not_run() -> None:
    ends = Ends(waiting=[2, 1, 2])
    ends.side._run_one_test()
    ends.side._run_one_test()
    ends.side._run_one_test()
    assert ends.interactor.ran == [0, 1]


def test_an_interrupt_is_that_of_ctrl_c(ends: Ends) -> None:
    with pytest.raises(KeyboardInterrupt):
        ends.controller.send(Interrupt())
