"""Messages of workers that are of the declared types, and still none of an honest worker."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_mlms.core.recorded import folder_of_item
from pytest_mlms.distribute.controller import Controller
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver
from pytest_mlms.distribute.workers import AssignedItems, StealRequest, WorkerState
from tests.support.project import ROOT
from tests.support.worker_fuzzing import connected, schedule

MESSAGES = json.loads((ROOT / "tests" / "corpus" / "messages" / "worker.json").read_text())
ACCURACY = "m.yaml::test_accuracy[a]"
PERFORMANCE = "m.yaml::test_performance[a]"
OWN, OTHERS = folder_of_item(ACCURACY), folder_of_item(PERFORMANCE)
LINE: dict[str, Any] = {
    "nodeid": ACCURACY,
    "kind": "accuracy",
    "verdict": "PASSED",
    "case": "onnxruntime-cpu-b1",
    "manifest": {"path": "m.yaml", "name": "m", "version": "1"},
    "stack": {"name": "here", "threads": None, "cores": [0], "declared": {}},
}
TEARDOWN = {"nodeid": ACCURACY, "verdict": "ERROR", "message": "it failed"}
Change = Callable[[dict[str, Any], list[dict[str, Any]], list[int]], object]


def announce(folder: Path, change: Change) -> tuple[WorkerState, list[str]]:
    """Have a worker announce its host and its items; return it, and the losses of the run."""
    name, host, needs, rows = copy.deepcopy(MESSAGES[0])
    change(host, needs, rows)
    controller, worker = connected(folder)
    worker.connection.channel._receive((name, host, needs, rows))
    schedule(controller, worker)
    return worker, controller._notices.losses


def test_an_honest_worker_is_sent_items(tmp_path: Path) -> None:
    worker, losses = announce(tmp_path, lambda host, needs, rows: None)
    assert worker.node.received
    assert losses == []


@pytest.mark.parametrize(
    "change",
    [
        lambda host, needs, rows: rows.__setitem__(0, 5),
        lambda host, needs, rows: needs[0]["hardware"].update(memory="much"),
        lambda host, needs, rows: needs[0]["hardware"].update(cores=">= many"),
        lambda host, needs, rows: needs[0].pop("manifest"),
        lambda host, needs, rows: needs[0].pop("case"),
        lambda host, needs, rows: host.update(host="h\x1b[2J"),
        lambda host, needs, rows: host["labels"].update({"\u202e": "x"}),
        lambda host, needs, rows: host.update(memory=10**400),
    ],
)
def test_an_announcement_that_nobody_can_use_gives_the_worker_up(
    tmp_path: Path, change: Change
) -> None:
    worker, losses = announce(tmp_path, change)
    assert worker.announcement is None
    assert worker.node.shutting_down
    assert losses == ["gw0 is left out: it did not say what its host has"]


def test_a_host_announces_itself_once(tmp_path: Path) -> None:
    """By another host's name it could have that one's disk count as full."""
    worker, _ = announce(tmp_path, lambda host, needs, rows: None)
    name, host, needs, rows = copy.deepcopy(MESSAGES[0])
    worker.connection.channel._receive((name, {**host, "host": "another"}, needs, rows))
    assert worker.host_name == "h"
    assert worker.node.shutting_down


def test_a_worker_that_tells_the_needs_of_some_of_its_items_is_left_out(tmp_path: Path) -> None:
    _, losses = announce(tmp_path, lambda host, needs, rows: rows.pop())
    assert losses == ["h (gw0) is left out: it did not say what each of its items needs"]


def test_a_lock_of_a_core_may_have_any_name(tmp_path: Path) -> None:
    def rename(host: dict[str, Any], needs: list[dict[str, Any]], rows: list[int]) -> None:
        host["devices"][0]["locks"] = ["h core-" + "9" * 5000, "h core-\u0663", "h core-0"]

    worker, losses = announce(tmp_path, rename)
    assert worker.node.received
    assert losses == []


@pytest.mark.parametrize("result", [{}, {"nodeid": 5}, {"kind": "upgrade"}])
def test_an_interrupted_result_that_is_none_gives_the_worker_up(
    tmp_path: Path, result: dict[str, Any]
) -> None:
    controller, worker = connected(tmp_path)
    worker.connection.channel._receive(("InterruptedResult", result))
    assert controller._interrupted == []
    assert worker.node.shutting_down


@pytest.mark.parametrize(
    ("index", "name"),
    [(1, PERFORMANCE), (0, PERFORMANCE), (10**9, ACCURACY), (-1, ACCURACY), ("0", ACCURACY)],
)
def test_a_report_of_an_item_that_a_worker_was_not_sent_gives_it_up(
    tmp_path: Path, index: Any, name: str
) -> None:
    controller, worker = with_first_item(tmp_path)
    assert controller.reports_to_pass_on(worker.node, report_of(name, index)) == []
    assert worker.node.shutting_down


def test_a_report_of_an_item_that_a_worker_was_sent_goes_on(tmp_path: Path) -> None:
    controller, worker = with_first_item(tmp_path)
    report = report_of(ACCURACY, 0)
    assert controller.reports_to_pass_on(worker.node, report) == [report]
    assert not worker.node.shutting_down


@pytest.mark.parametrize(
    "change",
    [
        {"nodeid": PERFORMANCE},
        {"case": "onnxruntime-cuda-b1"},
        {"manifest": {"path": "m.yaml", "name": "other", "version": "1"}},
        {"stack": {"name": "gpu=b", "threads": None, "cores": [], "declared": {}}},
    ],
)
def test_a_result_of_another_item_makes_its_item_an_error(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    controller, worker = with_first_item(tmp_path)
    report = report_of(ACCURACY, 0)
    report.mlms = {**LINE, **change}  # type: ignore[attr-defined]
    (passed_on,) = controller.reports_to_pass_on(worker.node, report)
    assert passed_on.failed
    line = passed_on.mlms
    assert (line["nodeid"], line["verdict"]) == (ACCURACY, "ERROR")
    assert "h (gw0) sent something else than its result: it is that of another" in line["message"]


def test_a_result_of_its_item_goes_on(tmp_path: Path) -> None:
    controller, worker = with_first_item(tmp_path)
    report = report_of(ACCURACY, 0)
    report.mlms = LINE  # type: ignore[attr-defined]
    report.mlms_teardown = TEARDOWN  # type: ignore[attr-defined]
    assert controller.reports_to_pass_on(worker.node, report) == [report]
    assert report.passed
    assert report.mlms is LINE


@pytest.mark.parametrize(
    "change",
    [{"nodeid": PERFORMANCE}, {"kind": "end"}, {"message": ["x"]}, {"verdict": "PASSED"}],
)
def test_a_tear_down_of_another_item_makes_its_item_an_error(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    """It changed the verdict of that item."""
    controller, worker = with_first_item(tmp_path)
    report = report_of(ACCURACY, 0)
    report.mlms_teardown = {**TEARDOWN, **change}  # type: ignore[attr-defined]
    (passed_on,) = controller.reports_to_pass_on(worker.node, report)
    assert passed_on.mlms["verdict"] == "ERROR"
    assert not hasattr(passed_on, "mlms_teardown")


def test_an_interrupted_result_of_an_item_that_a_worker_was_not_sent_is_left_out(
    tmp_path: Path,
) -> None:
    """It took the place of another host's."""
    controller, worker = with_first_item(tmp_path)
    added: list[dict[str, Any]] = []
    reporter = SimpleNamespace(add=added.append)
    plugins = SimpleNamespace(getplugin=lambda name: reporter)
    controller._config = SimpleNamespace(pluginmanager=plugins)  # type: ignore[assignment]
    patches: Any = SimpleNamespace(report_in_flight=None, drain=lambda: None)
    controller._patches = patches
    for nodeid in (ACCURACY, PERFORMANCE):
        line = {**LINE, "nodeid": nodeid, "artifacts": {"x": f"items/{OWN}/x"}}
        worker.connection.channel._receive(("InterruptedResult", line))
    controller.pytest_keyboard_interrupt()
    assert [line["nodeid"] for line in added] == [ACCURACY]
    assert added[0]["artifacts_lost"] == {"x": "it did not arrive"}


def test_the_end_of_an_item_counts_once_its_result_is_there(tmp_path: Path) -> None:
    """Without it an item had neither a result nor an error, and the run passed."""
    controller, worker = with_first_item(tmp_path)
    controller._scheduler.items.with_result.add(0)
    assert controller.may_complete(worker.node, 0)
    assert not worker.node.shutting_down


@pytest.mark.parametrize("index", [0, 1, 10**9, -1])
def test_the_end_of_an_item_without_its_result_gives_the_worker_up(
    tmp_path: Path, index: int
) -> None:
    controller, worker = with_first_item(tmp_path)
    controller._scheduler.items.with_result.add(1)
    assert not controller.may_complete(worker.node, index)
    assert worker.node.shutting_down


@pytest.mark.parametrize(
    ("asked", "indices", "is_right"),
    [
        ([0], [0], True),
        ([0], [], True),
        (None, [], True),
        ([0], [1], False),
        ([0], [0, 0], False),
        (None, [0], False),
        ("nothing", [0], False),
        ("nothing", [], False),
    ],
)
def test_only_what_a_worker_was_asked_for_is_taken_back(
    tmp_path: Path, asked: Any, indices: list[int], is_right: bool
) -> None:
    controller, worker = with_first_item(tmp_path)
    if asked != "nothing":
        worker.assigned.steal_requests.append(StealRequest(asked))
    assert controller.may_give_back(worker.node, indices) == is_right
    assert worker.node.shutting_down != is_right


@pytest.mark.parametrize(
    ("path", "is_own"),
    [
        (f"items/{OWN}/outputs.npz", True),
        (f"items/{OWN}-2/images/a.png", True),
        ("agents/onnxruntime-gw0-3.log", True),
        (f"items/{OTHERS}/outputs.npz", False),
        (f"items/{OTHERS}-2/outputs.npz", False),
        (f"items/{OWN}", False),
        ("items/x/y", False),
        ("agents/onnxruntime-gw1-0.log", False),
        ("agents/onnxruntime-main-0.log", False),
        ("agents/onnxruntime-gw1-0.log/a-gw0-0.log", False),
    ],
)
def test_a_host_writes_no_file_of_another_item_or_worker(
    tmp_path: Path, path: str, is_own: bool
) -> None:
    """It could replace the outputs and logs of other hosts."""
    controller, worker = with_first_item(tmp_path)
    channel = worker.connection.channel
    is_file_of = partial(controller._is_file_of, worker.node)
    receiver = ResultReceiver(tmp_path / "run", channel, is_file_of)
    channel._handlers = {**channel._handlers, **receiver.handlers}
    for message in (
        ("FileBegin", path),
        ("FileChunk", b"x"),
        ("FileEnd", sha256(b"x").hexdigest(), ""),
    ):
        channel._receive(message)
    assert (tmp_path / "run" / path).is_file() == is_own
    reason = "it is a file of another item or worker"
    assert receiver.lost == ({} if is_own else {path: reason})
    result: dict[str, Any] = {"artifacts": {"outputs": path}}
    receiver.note_lost_files(result)
    assert result["artifacts"] == ({"outputs": path} if is_own else {})


def test_a_result_names_no_file_of_another_item(tmp_path: Path) -> None:
    controller, worker = with_first_item(tmp_path)
    is_file_of = partial(controller._is_file_of, worker.node)
    receiver = ResultReceiver(tmp_path / "run", worker.connection.channel, is_file_of)
    (tmp_path / "run" / "items" / OTHERS).mkdir(parents=True)
    (tmp_path / "run" / "items" / OTHERS / "outputs.npz").write_bytes(b"")
    result: dict[str, Any] = {
        "artifacts": {"a": f"items/{OTHERS}/outputs.npz", "b": f"items/{OWN}/b"},
        "logs": ("agents/jax-gw1-0.log",),  # execnet has tuples, too
    }
    receiver.note_lost_files(result)
    others = "it is a file of another item or worker"
    lost = {"a": others, "b": "it did not arrive", "agents/jax-gw1-0.log": others}
    assert result == {"artifacts": {}, "artifacts_lost": lost, "logs": []}


def with_first_item(folder: Path) -> tuple[Controller, WorkerState]:
    """Return a controller with a worker that was sent the first of two items."""
    name, host, needs, rows = copy.deepcopy(MESSAGES[0])
    controller, worker = connected(folder)
    worker.connection.channel._receive((name, host, needs, rows))
    schedule(controller, worker)
    worker.assigned = AssignedItems()
    worker.assigned.add_locked([0], frozenset())
    options = {"setuponly": False}
    config: Any = SimpleNamespace(
        rootpath=folder,
        invocation_params=SimpleNamespace(dir=folder, args=()),
        getoption=lambda name, default=None: options.get(name, default),
        getini=lambda name: [] if name == "norecursedirs" else None,
    )
    controller._config = config
    return controller, worker


def report_of(nodeid: str, index: Any) -> pytest.TestReport:
    """Return the report of a call, as xdist makes it of what a worker sends."""
    report = pytest.TestReport(nodeid, ("m.yaml", 0, "x"), {}, "passed", None, "call")
    report.item_index = index  # type: ignore[attr-defined]
    return report
