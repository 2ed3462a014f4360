"""The list of the hosts of a run."""

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
    def __init__(self, width: int = 200) -> None:
        self._tw = SimpleNamespace(fullwidth=width)
        self.title = ""
        self.lines: list[str] = []

    def write_sep(self, sep: str, title: str) -> None:
        self.title = title

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines.append(line)


def shown(*workers: WorkerState, width: int = 200) -> tuple[str, list[str]]:
    """Return the title of the list, and its lines with one blank between words."""
    terminal = FakeTerminal(width)
    write_workers(cast("pytest.TerminalReporter", terminal), workers)
    assert max(map(len, terminal.lines), default=0) <= width
    return terminal.title, [" ".join(line.split()) for line in terminal.lines]


def test_each_host_has_a_line_for_each_of_its_devices() -> None:
    title, lines = shown(
        make_worker("gpu1", "gw0"), make_worker("gpu1", "gw1"), make_worker("gpu2", "gw2")
    )
    assert title == "mlms: the fleet, 2 hosts"
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert first[:2] == ["gpu1", "workers gw0, gw1"]
    assert second[:2] == ["gpu2", "workers gw2"]
    assert second[2:] == first[2:]
    assert [line.split()[0] for line in first[2:]] == ["cpu", "cuda:0", "frameworks"]
    assert "141 GiB" in first[3]
    assert first[4] == "frameworks onnxruntime 1.20.1"


def test_workers_of_a_host_that_see_other_devices_are_listed_apart() -> None:
    workers = []
    for worker, uuid in (("gw0", "MIG-11"), ("gw1", "MIG-22")):
        devices = [{"name": "cuda:0", "kind": "x", "uuid": uuid, "memory": 1, "locks": [uuid]}]
        announcement = WorkerAnnouncement(make_capabilities("a", devices=devices), [], [])
        workers.append(make_worker("a", worker, announcement=announcement))
    title, lines = shown(*workers)
    assert title == "mlms: the fleet, 1 host"
    assert lines[:3] == ["a", "workers gw0", "cuda:0 x, 1.00 B, MIG-11"]
    assert lines[4:7] == ["a", "workers gw1", "cuda:0 x, 1.00 B, MIG-22"]


def test_what_else_a_host_has_is_below_its_devices() -> None:
    capabilities = make_capabilities(
        "a", interpreters=["3.11"], engines=["podman"], labels={"gpu": "new"}, stacks=["old-torch"]
    )
    worker = make_worker(announcement=WorkerAnnouncement(capabilities, [], []))
    _, lines = shown(worker)
    assert lines[-4:] == ["python 3.11", "containers podman", "labels gpu=new", "stacks old-torch"]


@pytest.mark.parametrize("width", [80, 100])
def test_names_stay_whole_at_any_width(width: int) -> None:
    kind = "NVIDIA H200 NVL MIG 1g.18gb+me"
    uuid = "MIG-5d7a2a0c-3b1e-5b3c-9a6d-0f6f2c9f7a11"
    gpu = {"name": "cuda:0", "kind": kind, "uuid": uuid, "memory": 16 << 30, "driver": "570.86.15"}
    stacks = [f"onnxruntime-1.{minor}.0" for minor in range(1, 30)]
    capabilities = make_capabilities("a", devices=[gpu], stacks=stacks)
    worker = make_worker(announcement=WorkerAnnouncement(capabilities, [], []))
    _, lines = shown(worker, width=width)
    text = "\n".join(lines)
    for name in (kind, uuid, "16.0 GiB", "driver 570.86.15", *stacks):
        assert name in text


def test_what_a_host_announces_moves_no_cursor() -> None:
    device = {"name": "\x1b[2J", "kind": "x", "uuid": "1", "memory": 1, "locks": ["\x1b[1m"]}
    capabilities = make_capabilities("a\x1b[3m", devices=[device])
    _, lines = shown(make_worker("a", "gw0", WorkerAnnouncement(capabilities, [], [])))
    assert "\\x1b[2J" in " ".join(lines)
    assert "\x1b" not in "".join(lines)


def test_a_worker_that_announced_nothing_is_not_listed() -> None:
    silent = WorkerState(Connection(FakeNode(), RecordingChannel()))
    assert shown(silent) == ("mlms: the fleet, 0 hosts", [])


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
