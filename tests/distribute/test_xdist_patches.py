"""The patches of xdist, with hand-written fakes of its session and of hosts."""

from __future__ import annotations

import queue
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import xdist.dsession
import xdist.workermanage
from xdist.remote import serialize_warning_message

from pytest_mlms.distribute import xdist_patches
from pytest_mlms.distribute.remote.hosts import UnfitHost
from pytest_mlms.distribute.xdist_patches import XdistPatches


class FakeControl:
    """The controller's decisions; keeps what it is told."""

    def __init__(self) -> None:
        self.checks = 0
        self.wants_workers = True
        self.interrupted: list[Any] = []
        self.passes_on: list[Any] = []
        self.allows = True
        self.left: list[Any] = []

    def reports_to_pass_on(self, node: Any, report: Any) -> list[Any]:
        return self.passes_on

    def may_complete(self, node: Any, index: int) -> bool:
        return self.allows

    def may_give_back(self, node: Any, indices: Any) -> bool:
        return self.allows

    def has_items(self, node: Any) -> bool:
        return node in self.left

    def interrupt(self, nodes: Any) -> None:
        self.interrupted += nodes

    def needs_workers(self) -> bool:
        return self.wants_workers

    def reschedule(self) -> None:
        pass

    def check_workers(self, now: float) -> None:
        self.checks += 1


class FakeNotices:
    def __init__(self) -> None:
        self.losses: list[str] = []
        self.shown: list[str] = []

    def add_loss(self, text: str) -> None:
        self.losses.append(text)

    def show(self, text: str) -> None:
        self.shown.append(text)


class FakeNode:
    def __init__(self, spec: Any) -> None:
        self.gateway = SimpleNamespace(spec=spec, id="gw0")
        self.workeroutput: dict[str, Any] = {"exitstatus": 0}
        self._down = False


class FakeDSession:
    """xdist's session, as far as it is patched."""

    def __init__(self) -> None:
        self._max_worker_restart: int | None = None
        self._active_nodes: set[Any] = set()
        self.queue: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.shuttingdown = False
        self.sched = SimpleNamespace(tests_finished=False)
        self.reports: list[Any] = []
        self.finished: list[Any] = []
        self.down: list[Any] = []
        self.nodemanager = SimpleNamespace(
            group=SimpleNamespace(allocate_id=lambda spec: setattr(spec, "id", "gw9")),
            setup_node=lambda spec, putevent: FakeNode(spec),
        )
        self._clone_node: Any = None

    def worker_testreport(self, node: Any, rep: Any) -> None:
        self.reports.append(rep)

    def worker_workerfinished(self, node: Any) -> None:
        self._active_nodes.remove(node)
        self.finished.append(node)

    def worker_errordown(self, node: Any, error: object) -> None:
        self._active_nodes.remove(node)
        self.down.append(error)

    def worker_runtest_protocol_complete(self, node: Any, item_index: int, duration: float) -> None:
        self.reports.append(item_index)

    def worker_unscheduled(self, node: Any, indices: Any) -> None:
        self.reports.append(indices)

    def triggershutdown(self) -> None:
        self.shuttingdown = True

    def run_events(self) -> None:
        """Handle what is in the queue, as xdist's loop does."""
        while not self.queue.empty():
            name, arguments = self.queue.get()
            getattr(self, f"worker_{name}")(**arguments)


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
def notices() -> FakeNotices:
    return FakeNotices()


@pytest.fixture
def session() -> FakeDSession:
    return FakeDSession()


@pytest.fixture
def patches(
    control: FakeControl,
    notices: Any,
    session: FakeDSession,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[XdistPatches]:
    monkeypatch.setattr(xdist_patches, "_TICK_SECONDS", 3600)
    config: Any = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin=lambda name: session))
    workspace: Any = SimpleNamespace(map_arguments=lambda arguments: ["mapped"], folder="folder")
    made = XdistPatches(config, control, notices, workspace)
    made.install()
    yield made
    made.remove()


def make_spec(ssh: str | None = None) -> Any:
    return SimpleNamespace(ssh=ssh, ssh_config=None, id="gw0", _spec="popen", python=None)


def lose(session: FakeDSession, spec: Any) -> None:
    """End a worker as xdist does: a clone is asked for before the node is removed."""
    node = FakeNode(spec)
    session._active_nodes.add(node)
    session._clone_node(node)
    session._active_nodes.remove(node)
    session.run_events()


def test_what_was_patched_is_restored(patches: XdistPatches) -> None:
    assert xdist.workermanage.make_reltoroot([], ["x"]) == ["mapped"]
    patches.remove()
    assert xdist.dsession.NodeManager is xdist.workermanage.NodeManager
    assert xdist.workermanage.make_reltoroot([], ["x"]) == ["x"]


@pytest.mark.usefixtures("patches")
@pytest.mark.parametrize("part", ["message", "category"])
def test_a_warning_of_a_worker_calls_nothing_here(tmp_path: Path, part: str) -> None:
    data = serialize_warning_message(recorded_warning(DeprecationWarning("old")))
    received = xdist.workermanage.unserialize_warning_message(data)
    assert received.category is DeprecationWarning
    assert repr(received.message) == "DeprecationWarning('old')"
    folder = tmp_path / "made"
    evil = {f"{part}_module": "os", f"{part}_class_name": "mkdir", "message_args": [str(folder)]}
    received = xdist.workermanage.unserialize_warning_message({**data, **evil})
    assert issubclass(received.category, Warning)
    assert not folder.exists()
    xdist_patches._STOCK_UNSERIALIZE_WARNING({**data, **evil})
    assert folder.exists() == (part == "message"), "xdist itself calls it"


def recorded_warning(warning: Warning) -> warnings.WarningMessage:
    return warnings.WarningMessage(warning, type(warning), "a.py", 1)


def test_a_lost_worker_is_replaced_twice(
    patches: XdistPatches, session: FakeDSession, notices: FakeNotices
) -> None:
    spec = make_spec()
    for _ in range(2):
        lose(session, spec)
        assert len(patches.living_nodes) == 1
        session._active_nodes.clear()
    lose(session, spec)
    assert patches.living_nodes == set()
    assert session.shuttingdown
    assert notices.losses == ["no worker is left"]


def test_max_worker_restart_limits_the_replacements(
    control: FakeControl, session: FakeDSession, patches: XdistPatches
) -> None:
    patches._most_respawns = 0
    lose(session, make_spec())
    assert patches.living_nodes == set()


def test_a_worker_that_nothing_is_left_for_is_not_replaced(
    control: FakeControl, notices: FakeNotices, session: FakeDSession, patches: XdistPatches
) -> None:
    control.wants_workers = False
    session.sched.tests_finished = True
    lose(session, make_spec())
    assert session.shuttingdown
    assert notices.losses == []


def test_a_run_waits_for_the_replacement(
    session: FakeDSession, patches: XdistPatches, control: FakeControl
) -> None:
    node = FakeNode(make_spec())
    session._active_nodes.add(node)
    session._clone_node(node)
    session._active_nodes.remove(node)
    assert patches.replacements_pending == 1
    assert session._active_nodes  # xdist's loop goes on
    assert patches.living_nodes == set()
    session.run_events()
    assert patches.replacements_pending == 0


def test_a_host_that_became_unfit_is_left_out(
    session: FakeDSession, patches: XdistPatches, notices: FakeNotices
) -> None:
    def refuse(spec: Any, putevent: Any) -> Any:
        raise UnfitHost("it has another pytest")

    session.nodemanager.setup_node = refuse
    lose(session, make_spec())
    assert notices.losses[0] == "popen is left out: popen can't be used: it has another pytest"


def test_a_remote_host_is_asked_whether_it_is_there(
    session: FakeDSession,
    patches: XdistPatches,
    notices: FakeNotices,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\necho no route >&2\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    node = FakeNode(make_spec(ssh="-p 22 gpu1"))
    session._active_nodes.add(node)
    session._clone_node(node)
    session._active_nodes.remove(node)
    name, arguments = session.queue.get(timeout=300)
    getattr(session, f"worker_{name}")(**arguments)
    assert notices.losses == ["gpu1 is left out: no route", "no worker is left"]


@pytest.mark.usefixtures("patches")
def test_items_for_a_worker_whose_connection_has_broken_are_dropped_until_its_loss_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its loss may wait behind other events, whose items were sent to it: an internal error."""

    def broken(name: str, **arguments: Any) -> None:
        raise OSError("cannot send (already closed?)")

    node = SimpleNamespace(sendcommand=broken)
    monkeypatch.setattr(xdist.workermanage.NodeManager, "setup_node", lambda *_: node)
    manager = xdist.dsession.NodeManager.func.__new__(xdist.dsession.NodeManager.func)
    started = manager.setup_node(make_spec(), print)
    started.sendcommand("runtests", indices=[1, 2])


def test_an_internal_error_of_a_worker_counts_as_its_loss(
    session: Any, patches: XdistPatches, notices: FakeNotices
) -> None:
    node = started(session)
    session.worker_internal_error(node, "a plugin is broken")
    assert notices.shown == ["gw0 has an internal error:\na plugin is broken"]
    node.workeroutput["exitstatus"] = pytest.ExitCode.INTERNAL_ERROR
    session.worker_workerfinished(node)
    assert session.down == ["internal error"]
    assert session.finished == []


def test_a_worker_that_ends_by_itself_is_finished(session: Any, patches: XdistPatches) -> None:
    node = started(session)
    session.worker_workerfinished(node)
    assert session.finished == [node]


def started(session: FakeDSession) -> FakeNode:
    """Return a worker that xdist counts on."""
    node = FakeNode(make_spec())
    session._active_nodes.add(node)
    return node


def test_a_worker_that_is_lost_or_ends_twice_is_so_once(
    session: Any, patches: XdistPatches
) -> None:
    """xdist ends a run where it is told twice, as after a report that it can't read."""
    node = started(session)
    session.worker_errordown(node, "first")
    session.worker_errordown(node, "second")
    session.worker_workerfinished(node)
    assert session.down == ["first"]
    assert session.finished == []


@pytest.mark.parametrize("shouldfail", [False, "stopping after 1 failures"])
def test_a_worker_that_ends_before_its_items_is_lost_unless_it_stops_the_run(
    session: Any, patches: XdistPatches, control: FakeControl, shouldfail: object
) -> None:
    node = started(session)
    control.left = [node]
    node.workeroutput["shouldfail"] = shouldfail
    session.worker_workerfinished(node)
    assert session.down == ([] if shouldfail else ["it ended before its items"])


def test_what_the_controller_does_not_allow_does_not_reach_xdist(
    session: Any, patches: XdistPatches, control: FakeControl
) -> None:
    node = started(session)
    for control.allows in (False, True):
        session.worker_runtest_protocol_complete(node=node, item_index=3, duration=0.1)
        session.worker_unscheduled(node=node, indices=[4])
    assert session.reports == [3, [4]]


def test_only_the_reports_that_the_controller_passes_on_reach_xdist(
    session: Any, patches: XdistPatches, control: FakeControl
) -> None:
    session.worker_testreport(FakeNode(make_spec()), "held")
    control.passes_on = ["setup", "call"]
    session.worker_testreport(FakeNode(make_spec()), "call")
    assert session.reports == ["setup", "call"]


def test_the_controller_checks_the_workers_at_each_tick(
    session: Any, patches: XdistPatches, control: FakeControl
) -> None:
    session._active_nodes.add(FakeNode(make_spec()))
    session.worker_mlms_tick()
    assert control.checks == 1


def test_after_ctrl_c_the_last_reports_are_taken(
    session: Any, patches: XdistPatches, control: FakeControl
) -> None:
    node = FakeNode(make_spec())
    session._active_nodes.add(node)
    control.passes_on = ["call"]
    session.queue.put(("testreport", {"node": node, "rep": "call"}))
    session.queue.put(("logfinish", {}))
    node._down = True
    patches.drain()
    assert session.reports == ["call"]
    assert control.interrupted == []


def test_a_banner_that_is_no_utf_8_does_not_end_the_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "ssh"
    program.write_text("#!/bin/sh\nprintf 'Gesch\\374tzt\\033[2J\\n' >&2\nexit 255\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    spec = SimpleNamespace(ssh="gpu1", ssh_config=None)
    assert xdist_patches._connection_error(spec) == "Gesch\ufffdtzt\\x1b[2J"
