"""Mutated answers of hosts and messages of workers, through the code of the controller."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from pytest_mlms.core.text import visible
from pytest_mlms.distribute.controller import Controller
from pytest_mlms.distribute.inventory import write_workers
from pytest_mlms.distribute.lost_items import LostItem
from pytest_mlms.distribute.remote import ssh
from pytest_mlms.distribute.remote.install import _describe, _platforms
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver
from pytest_mlms.distribute.remote.ssh import SshHost
from pytest_mlms.distribute.retries import ReportFilter
from pytest_mlms.distribute.scheduler import FleetScheduler, RunInfo
from pytest_mlms.distribute.workers import Connection, WorkerState
from tests.distribute.fakes import FakeNode, channel_pair, make_notices

__all__ = ["connected", "read_answer", "read_messages", "schedule"]

_IDS = ("m.yaml::test_accuracy[a]", "m.yaml::test_performance[a]", "test_other.py::test_other")
_MARK = "mark"


def read_answer(data: bytes, folder: Path) -> None:
    """Take what a host printed, in which the answer of its Python may be, and name its wheels."""
    framed = data if b"MARK" in data else b"MARK\n%s\nMARK\n" % data
    printed = framed.replace(b"MARK", _MARK.encode())
    with (
        patch.object(ssh, "_bounded_run", lambda command, given: (0, printed, b"")),
        patch("secrets.token_hex", lambda size: _MARK),
    ):
        assert len(_platforms(_describe(SshHost("h")))) < 1000


class _Terminal:
    """A terminal, which no text of a worker may command."""

    _tw = SimpleNamespace(fullwidth=200, width_of_current_line=0)

    def write_line(self, line: str, **markup: bool) -> None:
        assert visible(line) == line, line

    def write_sep(self, sep: str, title: str) -> None:
        assert visible(title) == title, title


class _OtherTests:
    """The scheduler of xdist, which has nothing to do with what a worker says."""

    numnodes = 0

    def __init__(self) -> None:
        self.nodes: list[Any] = []

    def add_node(self, node: Any) -> None:
        self.nodes.append(node)

    def add_node_collection(self, node: Any, collection: Any) -> None:
        pass

    def schedule(self) -> None:
        pass


def read_messages(data: bytes, folder: Path) -> None:
    """Receive messages of a worker, take its files, and choose its items."""
    try:
        received = json.loads(data)
    except (ValueError, RecursionError):
        return
    run = folder / "run"
    controller, worker = connected(run)
    for message in received if isinstance(received, list) else [received]:
        worker.connection.channel._receive(_as_sent(message))
    if worker.connection.receiver:
        worker.connection.receiver.close()
    assert {path.name for path in folder.iterdir()} <= {"run"}
    if run.exists():
        assert {path.name for path in run.iterdir()} <= {"items", "agents"}
        shutil.rmtree(run)
    schedule(controller, worker)


def _as_sent(message: Any) -> Any:
    """Return a message as execnet transfers it; JSON has neither tuples nor bytes."""
    if not isinstance(message, list):
        return message
    if message[:1] != ["FileChunk"]:
        return tuple(message)
    name, *parts = message
    return (name, *(part.encode() if isinstance(part, str) else part for part in parts))


def connected(run: Path) -> tuple[Controller, WorkerState]:
    """Return a controller with a worker on a host of its own, of which nothing is known yet."""
    node: Any = FakeNode()
    node.gateway._io = SimpleNamespace(kill=node.shutdown)
    channel, other = channel_pair()
    other._channel.setcallback(lambda message: None, None)
    controller = Controller.__new__(Controller)
    controller._workers = {}
    controller._interrupted = []
    controller._notices = make_notices(_Terminal())
    controller._connect(Connection(node, channel, ResultReceiver(run, channel, lambda path: True)))
    return controller, controller._workers[node]


def schedule(controller: Controller, worker: WorkerState) -> None:
    """Have the scheduler take the worker, and the table of hosts show it."""
    terminal: Any = _Terminal()
    run = RunInfo(controller._notices, {}, False, lambda: False)
    scheduler = controller._scheduler = FleetScheduler(controller._workers, run)
    controller._report_filter = ReportFilter(scheduler)
    scheduler.delegate_to(_OtherTests())
    scheduler.add_node(worker.node)
    scheduler.add_node_collection(worker.node, _IDS)
    scheduler.schedule()
    write_workers(terminal, [worker])
    items = scheduler.items
    for index in filter(items.is_of_manifest, range(len(items.ids))):
        json.dumps(LostItem.of(items, index, "it is lost").as_line(None))
