"""The table of the hosts of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from pytest_mlms.distribute.inventory import InventoryScheduler, write_workers
from pytest_mlms.distribute.messages import WorkerAnnouncement
from pytest_mlms.distribute.workers import Connection, WorkerState
from tests.distribute.fakes import (
    FakeNode,
    RecordingChannel,
    make_capabilities,
    make_worker,
)


class FakeTerminal:
    def __init__(self) -> None:
        self._tw = SimpleNamespace(fullwidth=200)
        self.title = ""
        self.lines: list[str] = []

    def write_sep(self, sep: str, title: str) -> None:
        self.title = title

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines.append(line)


def rows(*workers: WorkerState) -> tuple[str, list[list[str]]]:
    """Return the title of the table, and the words of its lines."""
    terminal = FakeTerminal()
    write_workers(cast("pytest.TerminalReporter", terminal), workers)
    return terminal.title, [line.split() for line in terminal.lines]


def test_each_device_of_each_host_has_a_row() -> None:
    title, (header, cpu, gpu, other_cpu, _) = rows(
        make_worker("gpu1", "gw0"), make_worker("gpu1", "gw1"), make_worker("gpu2", "gw2")
    )
    assert title == "mlms: the fleet, 2 hosts"
    assert header[:3] == ["host", "workers", "device"]
    assert cpu[:4] == ["gpu1", "gw0", "gw1", "cpu"]
    assert cpu[-2:] == ["onnxruntime", "1.20.1"]
    assert gpu[0] == "cuda:0"
    assert "141 GiB" in " ".join(gpu)
    assert other_cpu[:3] == ["gpu2", "gw2", "cpu"]


def test_workers_of_a_host_that_see_other_devices_have_rows_of_their_own() -> None:
    workers = []
    for worker, uuid in (("gw0", "MIG-11"), ("gw1", "MIG-22")):
        devices = [{"name": "cuda:0", "kind": "x", "uuid": uuid, "memory": 1, "locks": [uuid]}]
        announcement = WorkerAnnouncement(make_capabilities("a", devices=devices), [], [])
        workers.append(make_worker("a", worker, announcement=announcement))
    title, (_, first, second) = rows(*workers)
    assert title == "mlms: the fleet, 1 host"
    assert first[:5] == ["a", "gw0", "cuda:0", "x", "MIG-11"]
    assert second[:5] == ["a", "gw1", "cuda:0", "x", "MIG-22"]


def test_what_else_a_host_has_is_in_the_last_column() -> None:
    capabilities = make_capabilities(
        "a", interpreters=["3.11"], engines=["podman"], labels={"gpu": "new"}, stacks=["old-torch"]
    )
    worker = make_worker(announcement=WorkerAnnouncement(capabilities, [], []))
    title, lines = rows(worker)
    assert title == "mlms: the fleet, 1 host"
    assert " ".join(lines[1]).endswith("python 3.11; podman gpu=new; stacks old-torch")


def test_a_worker_that_announced_nothing_is_not_in_the_table() -> None:
    silent = WorkerState(Connection(FakeNode(), RecordingChannel()))
    title, lines = rows(silent)
    assert title == "mlms: the fleet, 0 hosts"
    assert len(lines) == 1


def test_the_run_is_finished_when_no_worker_is_expected() -> None:
    expected = True
    scheduler = InventoryScheduler(lambda: expected)
    node = FakeNode()
    scheduler.add_node(node)
    scheduler.add_node_collection(node, ["x"])
    assert not scheduler.tests_finished
    assert not scheduler.collection_is_completed
    scheduler.remove_node(node)
    expected = False
    assert scheduler.tests_finished
    assert scheduler.nodes == []
