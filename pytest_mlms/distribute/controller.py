"""Controller of a distributed run: the plugin of the process that the user started.

It connects the parts of the run: the scheduler, the patches of xdist, the workers' channels, the
check for silent workers, and the messages to the user.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import pytest

from pytest_mlms.core.recorded import folder_of_item
from pytest_mlms.distribute.inventory import InventoryScheduler, write_workers
from pytest_mlms.distribute.lost_items import LostItem, as_error, report_of
from pytest_mlms.distribute.message_types import (
    commands_terminal,
    result_misfit,
    teardown_misfit,
)
from pytest_mlms.distribute.messages import (
    Heartbeat,
    Interrupt,
    InterruptedResult,
    WorkerAnnouncement,
)
from pytest_mlms.distribute.notices import Notices
from pytest_mlms.distribute.progress import Progress, summary
from pytest_mlms.distribute.remote.artifact_transfer import ArtifactServer
from pytest_mlms.distribute.remote.events import CheckedEvents
from pytest_mlms.distribute.remote.hosts import check_worker, has_own_files
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver
from pytest_mlms.distribute.remote.workspace_sync import WorkspaceSync
from pytest_mlms.distribute.retries import ReportFilter
from pytest_mlms.distribute.scheduler import FleetScheduler, RunInfo
from pytest_mlms.distribute.side_channel import CHANNEL_INPUT, Handler, SideChannel
from pytest_mlms.distribute.workers import Connection, SilenceMonitor, WorkerState
from pytest_mlms.distribute.xdist_patches import XdistPatches
from pytest_mlms.provide.host.matching import are_constraints
from pytest_mlms.session import REPORTER, Session
from pytest_mlms.show.report.durations import known_durations

_shown_needs = itemgetter("framework", "device", "hardware", "labels")
"""The needs of items that are told where no host can run them."""


class Controller:
    """A plugin of the controller's process, in a run that distributes manifests.

    It is also the ``RunControl`` of the patches of xdist.
    """

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self._config = config
        self._session = session
        self._workers: dict[Any, WorkerState] = {}
        self._interrupted: list[tuple[WorkerState, dict[str, Any]]] = []
        self._notices = Notices(config)
        self._workspace = WorkspaceSync(config, session.config)
        self._patches = XdistPatches(config, self, self._notices, self._workspace)
        options = session.config
        # Whether the history can be reached is known; a host that is away would be waited for.
        history = None if session.history_notices else options.history
        run = RunInfo(
            self._notices,
            known_durations(options.results, history),
            options.strict,
            self._expects_workers,
        )
        self._scheduler = FleetScheduler(self._workers, run, config)
        self._report_filter = ReportFilter(self._scheduler)
        self._silence = SilenceMonitor(session.config.worker_timeout, time.monotonic())
        self._progress = Progress(time.monotonic())

    # Start of the run

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Patch xdist before it starts its workers."""
        self._patches.install()

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Connect a new worker by a side channel, and send a remote one its workspace."""
        execnet_channel = node.gateway.newchannel()
        channel = SideChannel(execnet_channel)
        node.workerinput[CHANNEL_INPUT] = execnet_channel
        if has_own_files(node.gateway.spec):
            self._connect_remote(node, channel)
        else:
            node.workerinput["mlms_run_folder"] = str(self._session.run_folder)
            self._connect(Connection(node, channel))

    def _connect_remote(self, node: Any, channel: SideChannel) -> None:
        """Connect a worker that does not share our files.

        Raises UnfitHost where it can't be one.
        """
        run_folder = self._session.run_folder
        receiver = ResultReceiver(run_folder, channel, partial(self._is_file_of, node))
        server = ArtifactServer(self._workspace, channel)
        worker = self._connect(Connection(node, channel, receiver), server)
        give_up = partial(self._give_up, worker)
        node.process_from_remote = CheckedEvents(node.process_from_remote, give_up, self._config)
        check_worker(node.gateway)
        self._workspace.send(node.gateway, run_folder.name)
        node.workerinput["mlms_options"] = self._workspace.options()
        node.workerinput["mlms_run_folder"] = f"mlms-results/{run_folder.name}"

    def _connect(self, connection: Connection, server: ArtifactServer | None = None) -> WorkerState:
        worker = WorkerState(connection)
        self._workers[connection.node] = worker

        give_up = partial(self._give_up, worker)

        def note_announcement(message: WorkerAnnouncement) -> None:
            problem = "a new host" if worker.announcement else _problem_in(message)
            if problem:
                give_up(f"WorkerAnnouncement with {problem}")
            else:
                worker.announcement = message

        def note_interrupted(message: InterruptedResult) -> None:
            problem = result_misfit(message.result)
            if problem:
                give_up(f"InterruptedResult that is no result: {problem}")
            else:
                if connection.receiver:
                    connection.receiver.note_lost_files(message.result)
                self._interrupted.append((worker, message.result))

        handlers: dict[type, Handler] = {
            WorkerAnnouncement: note_announcement,
            InterruptedResult: note_interrupted,
            Heartbeat: lambda message: None,
        }
        on_close = []
        if server:
            handlers.update(server.handlers)
        if connection.receiver:
            handlers.update(connection.receiver.handlers)
            on_close.append(connection.receiver.close)
        connection.channel.listen(handlers, on_close, give_up)
        return worker

    @pytest.hookimpl(wrapper=True)
    def pytest_xdist_make_scheduler(self) -> Generator[None, Any, Any]:
        """Put our scheduler around the one that xdist, or another plugin, has made."""
        scheduler = yield
        if self._session.config.fleet:
            return InventoryScheduler(self._expects_workers)
        self._scheduler.delegate_to(scheduler)
        return self._scheduler

    # Results

    def reports_to_pass_on(self, node: Any, report: pytest.TestReport) -> list[pytest.TestReport]:
        """Return the reports that are to go on, now that one has come from a worker."""
        worker = self._workers[node]
        if worker.connection.receiver:
            index: Any = getattr(report, "item_index", None)
            is_sent = isinstance(report, pytest.TestReport) and self._is_assigned(worker, index)
            if not is_sent or self._scheduler.items.ids[index] != report.nodeid:
                self._give_up(worker, "a report of an item that it was not sent")
                return []
            self._check_result(worker, report)
        return self._report_filter.pass_on(worker, report)

    def may_complete(self, node: Any, index: int) -> bool:
        """Return whether an item has run, as a worker says; one of another host must show it."""
        worker = self._workers[node]
        if not worker.connection.receiver:
            return True
        if not self._is_assigned(worker, index):
            self._give_up(worker, "the end of an item that it was not sent")
            return False
        items = self._scheduler.items
        is_again = worker.retry is not None and worker.retry.item == index
        has_result = is_again or index in items.with_result or not items.is_of_manifest(index)
        if not has_result and not self._config.getoption("setuponly", False):
            self._give_up(worker, "the end of an item without its result")
            return False
        return True

    def may_give_back(self, node: Any, indices: Sequence[int]) -> bool:
        """Return whether a worker was asked for the items that it gives back."""
        worker = self._workers[node]
        if not worker.connection.receiver or worker.assigned.is_asked_for(indices):
            return True
        self._give_up(worker, "items back that it was not asked for")
        return False

    def has_items(self, node: Any) -> bool:
        """Return whether a worker has items that it has not run."""
        return bool(self._workers[node].assigned.order)

    def _is_assigned(self, worker: WorkerState, index: Any) -> bool:
        return isinstance(index, int) and index in worker.assigned.order

    def _is_file_of(self, node: Any, path: str) -> bool:
        """Return whether a file of the run is one of a worker's agents, or of an item it was sent.

        Called in the thread of the gateway that receives.
        """
        folder, name, *others = path.split("/")
        worker = self._workers[node]
        if folder == "agents":
            is_log = re.fullmatch(rf".+-{re.escape(worker.id)}-[0-9]+\.log", name)
            return bool(is_log) and not others
        if not others or not worker.assigned.sent:
            return False
        first = re.sub("-[0-9]{1,4}$", "", name)  # an item that ran again has a number
        indices = self._item_folders.get(name) or self._item_folders.get(first, [])
        return any(index in worker.assigned.sent for index in indices)

    @cached_property
    def _item_folders(self) -> Mapping[str, list[int]]:
        """The items by the names of their folders, asked for when some were sent."""
        found = defaultdict(list)
        for index, nodeid in enumerate(self._scheduler.items.ids):
            found[folder_of_item(nodeid)].append(index)
        return dict(found)

    def _give_up(self, worker: WorkerState, problem: str) -> None:
        self._notices.show(f"{worker.name} is given up: it sent {problem}")
        worker.node.gateway._io.kill()  # xdist then finds it dead

    def _check_result(self, worker: WorkerState, report: pytest.TestReport) -> None:
        """Make an item an error whose host sent something else than its result."""
        index = report.item_index
        problem = ""
        if hasattr(report, "mlms"):
            problem = result_misfit(report.mlms) or self._misfit_of_item(index, report.mlms)
        if hasattr(report, "mlms_teardown"):
            problem = problem or teardown_misfit(report.mlms_teardown, report.nodeid)
        if not problem:
            return
        report.__dict__.pop("mlms_teardown", None)
        report.outcome = "failed"
        reason = f"{worker.name} sent something else than its result: {problem}"
        items = self._scheduler.items
        if items.is_of_manifest(index):
            as_error(report, LostItem.of(items, index, reason), self._config)
        else:
            report.__dict__.pop("mlms", None)
            report.longrepr = reason

    def _misfit_of_item(self, index: int, result: Mapping[str, Any]) -> str:
        """Return why a line is not one of the item; "" where it is one."""
        items = self._scheduler.items
        if result["nodeid"] != items.ids[index]:
            return "it is that of another item"
        if not items.is_of_manifest(index):
            return "it is of no manifest"
        needs: Mapping[str, Any] = items.needs(index)
        found = [result["manifest"]["name"], result["stack"]["name"], result.get("case")]
        if found != [needs["manifest"]["name"], needs["stack"].get("name"), needs["case"]]:
            return "it is that of another case"
        return ""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        """Note which item has its result, and name in the result the files that did not arrive.

        The result is removed from the report afterwards, because pytest keeps all reports.
        """
        if hasattr(report, "mlms"):
            index = getattr(report, "item_index", None)
            if index is not None:
                self._scheduler.items.with_result.add(index)
            worker = self._workers.get(getattr(report, "node", None))
            if worker and worker.connection.receiver:
                worker.connection.receiver.note_lost_files(report.mlms)
        yield
        report.__dict__.pop("mlms", None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Make an item that lost its second worker an error, with a line in the results."""
        items = self._scheduler.items
        if crashitem not in items.ids:
            return
        index = list(items.ids).index(crashitem)
        if not items.is_of_manifest(index):
            return
        earlier = ""
        if index in items.retries:
            earlier = items.retries[index].earlier
        message = f"{earlier}; then {report.longrepr}"
        as_error(report, LostItem.of(items, index, message), self._config)

    # Workers that come, are silent, or are lost

    def interrupt(self, nodes: Iterable[Any]) -> None:
        """Let workers end as by Ctrl-C."""
        for node in nodes:
            worker = self._workers[node]
            worker.connection.channel.send(Interrupt())

    def needs_workers(self) -> bool:
        """Return whether there is something to do for another worker."""
        if not self._scheduler.collection_is_completed:
            return not self._session.config.fleet
        return self._scheduler.has_pending

    def reschedule(self) -> None:
        """Schedule after a worker has come or gone, and report the items no worker is left for."""
        if self._patches.is_stopping or not self._scheduler.collection_is_completed:
            return
        self._scheduler.schedule()
        items = self._scheduler.items
        for abandoned in self._scheduler.abandon_items():
            report = report_of(abandoned, items, self._config)
            self._config.hook.pytest_runtest_logreport(report=report)

    def check_workers(self, now: float) -> None:
        """Give up silent workers, and show how far the run is.

        Called every second; ``now`` is the monotonic time.
        """
        for worker in self._silence.find_silent(self._living_workers, now):
            limit = self._session.config.worker_timeout
            message = f"{worker.name} has been silent for {limit:g} s, and is given up"
            self._notices.show(message)
            worker.node.gateway._io.kill()  # xdist then finds it dead
        if not self._scheduler.collection_is_completed:
            return
        if self._progress.is_due(now, self._notices.are_on_terminal):
            line = summary(self._scheduler.items, self._workers.values(), now)
            self._notices.show(line)

    @pytest.hookimpl
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Note the loss of a worker, before xdist asks the scheduler."""
        worker = self._workers.get(node)
        if error and worker:
            loss = f"{worker.name} was lost: {error}"
            self._notices.losses.append(loss)

    def _expects_workers(self) -> bool:
        """Return whether a worker is still on its way."""
        if self._patches.replacements_pending:
            return True
        return not all(worker.collected for worker in self._living_workers)

    @property
    def _living_workers(self) -> list[WorkerState]:
        nodes = self._patches.living_nodes
        return [self._workers[node] for node in nodes]

    # End of the run

    @pytest.hookimpl
    def pytest_keyboard_interrupt(self) -> None:
        """Take the workers' results, also of the items that Ctrl-C interrupted."""
        reporter = self._config.pluginmanager.getplugin(REPORTER)
        result = getattr(self._patches.report_in_flight, "mlms", None)
        if result is not None and not reporter.has(result):
            reporter.add(result)
        self._patches.drain()
        for worker, result in self._interrupted:
            sent = worker.assigned.sent
            if not worker.connection.receiver or any(
                self._misfit_of_item(index, result) == "" for index in sent
            ):
                reporter.add(result)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run with losses, even if everything was measured elsewhere."""
        self._patches.remove()
        successful = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if self._notices.losses and session.exitstatus in successful:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the hosts of the run under --mlms-fleet, and the losses."""
        if self._session.config.fleet:
            write_workers(terminalreporter, self._workers.values())
        for loss in self._notices.losses:
            terminalreporter.write_line(f"mlms: {loss}", red=True)


def _problem_in(announced: WorkerAnnouncement) -> str:
    """Return the error in an announcement whose fields have their types; "" for none."""
    if not all(-1 <= row < len(announced.needs) for row in announced.rows):
        return "a row that is none of its needs"
    if not all(are_constraints(needs["hardware"]) for needs in announced.needs):
        return "hardware that no host can be held against"
    shown = [announced.capabilities, *map(_shown_needs, announced.needs)]
    return "control characters" if commands_terminal(shown) else ""
