"""The controller's side.

Keeps the seats, chooses the scheduler, watches for silence, reports what is lost.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable
from typing import Any

import pytest

from pytest_mlms.distribute.inventory import Inventory, write_seats
from pytest_mlms.distribute.messages import INPUT, Handler, Link
from pytest_mlms.distribute.progress import Progress, summary
from pytest_mlms.distribute.remote.artifact_transfer import ArtifactServer
from pytest_mlms.distribute.remote.hosts import check_worker, is_elsewhere
from pytest_mlms.distribute.remote.result_transfer import ResultReceiver
from pytest_mlms.distribute.remote.workspace_sync import WorkspaceSync
from pytest_mlms.distribute.retries import counted
from pytest_mlms.distribute.scheduler import FleetScheduler
from pytest_mlms.distribute.workers import WorkerState
from pytest_mlms.distribute.xdist_patches import XdistPatches
from pytest_mlms.host.capabilities import Capabilities
from pytest_mlms.host.requirements import OF_HOSTS
from pytest_mlms.report.durations import durations
from pytest_mlms.session import REPORTER, Session

__all__ = ["Controller"]


class Controller:
    """A plugin of the process that the user started, in a run that distributes manifests."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self.seats: dict[Any, WorkerState] = {}
        self._config = config
        self._session = session
        self._scheduler: FleetScheduler | None = None
        self._guard = XdistPatches(config, self)
        self.lost: list[str] = []
        self._interrupted: list[dict[str, Any]] = []
        terminal = config.pluginmanager.getplugin("terminalreporter")
        self._progress = Progress(bool(terminal and terminal.isatty), time.monotonic())
        self._ticked = time.monotonic()
        self.mirror = WorkspaceSync(config, session.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Before xdist starts its workers."""
        self._guard.install()

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a new worker its seat and its end of the side channel."""
        seat = self.seats[node] = WorkerState(node, is_elsewhere(node.gateway.spec))
        channel = node.gateway.newchannel()
        node.workerinput[INPUT] = channel
        node.workerinput["mlms_run_folder"] = str(self._session.run_folder)
        handlers: dict[str, Handler] = {}
        if seat.remote:
            check_worker(node.gateway)
            self.mirror.send(node.gateway, self._session.run_folder.name)
            node.workerinput["mlms_options"] = self.mirror.options()
            node.workerinput["mlms_run_folder"] = f"mlms-results/{self._session.run_folder.name}"
            courier, receiver = (
                ArtifactServer(self.mirror),
                ResultReceiver(self._session.run_folder),
            )
            seat.receiver = receiver
            handlers = {**courier.handlers, **receiver.handlers}

        def host(facts: Capabilities) -> None:
            seat.host = facts

        def items(table: list[Any], places: list[int]) -> None:
            seat.table, seat.places = table, places

        handlers |= {
            "host": host,
            "items": items,
            "beat": lambda: None,
            "interrupted": self._interrupted.append,
        }
        seat.link = Link(channel, handlers, *([receiver.close] if seat.remote else []))
        if seat.remote:
            courier.link = receiver.link = seat.link

    @pytest.hookimpl(wrapper=True)
    def pytest_xdist_make_scheduler(self) -> Generator[None, Any, Any]:
        """Put ours around the scheduler that xdist, or another plugin, has made."""
        inner = yield
        if self._session.config.fleet:
            return Inventory(self.coming)
        seconds = durations(self._session.config.results)
        strict = self._session.config.strict
        self._scheduler = FleetScheduler(
            inner, self.seats, seconds, strict, self.lost, self.tell, self.coming
        )
        return self._scheduler

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        """Remember whose result is here, and say in it which files are not.

        Pytest keeps reports, not results.
        """
        if hasattr(report, "mlms") and self._scheduler and self._scheduler.items:
            index = getattr(report, "item_index", None)
            if index is not None:
                self._scheduler.items.decided.add(index)
            seat = self.seats.get(getattr(report, "node", None))
            if seat and seat.receiver:
                seat.receiver.complete(report.mlms)
        yield
        report.__dict__.pop("mlms", None)

    @pytest.hookimpl
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Remember who died; xdist asks the scheduler next."""
        seat = self.seats.get(node)
        if error and seat:
            self.lost.append(f"{seat.name} was lost: {error}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """An item lost its second worker: an error, with a line in the results like any other."""
        items = self._scheduler.items if self._scheduler else None
        if items and crashitem in items.ids:
            index = list(items.ids).index(crashitem)
            if items.is_ours(index):
                earlier = items.again.get(index, {}).get("earlier", "")
                self._complete(report, index, f"{earlier}; then {report.longrepr}")

    @pytest.hookimpl
    def pytest_keyboard_interrupt(self) -> None:
        """Take the last words of workers, which Ctrl-C ends too.

        What was measured, also of items that it cut off.
        """
        self._guard.drain()
        reporter = self._config.pluginmanager.getplugin(REPORTER)
        for result in self._interrupted:
            reporter.add(result)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A run that lost a worker is no success, even if all was measured elsewhere."""
        self._guard.stop()
        if self.lost and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what there is, if that was asked, and what was lost."""
        if self._session.config.fleet:
            write_seats(terminalreporter, self.seats.values())
        for text in self.lost:
            terminalreporter.write_line(f"mlms: {text}", red=True)

    def counted(self, node: Any, report: pytest.TestReport) -> list[pytest.TestReport]:
        """Return the reports that are to go on, now that one has come."""
        seat = self.seats.get(node)
        return counted(report, seat, self._scheduler) if seat and self._scheduler else [report]

    def interrupt(self, nodes: Iterable[Any]) -> None:
        """Have workers end as by Ctrl-C."""
        for link in (self.seats[node].link for node in nodes):
            if link:
                link.send("interrupt")

    def coming(self) -> bool:
        """Whether a worker is still on its way, so that it is too early to say that nobody can run
        an item.
        """
        living = self._guard.living
        return self._guard.awaited > 0 or any(
            self.seats[node].ids is None for node in living if node in self.seats
        )

    def schedule(self) -> None:
        """Look again, after a worker is gone or has come; report what no worker is left for."""
        if self._scheduler and not self._guard.stopping:
            self._scheduler.schedule()
            for index, reason in self._scheduler.abandon():
                self._report(index, reason)

    def tick(self, now: float) -> None:
        """Called every second: end the connection to a worker that has been silent for too long."""
        limit = self._session.config.worker_timeout
        stopped, self._ticked = (
            now - self._ticked > 2 + limit / 2,
            now,
        )  # this process was: nobody could be heard
        for node in self._guard.living & self.seats.keys():
            seat = self.seats[node]
            if stopped:
                seat.excuse(now)
            elif seat.silence(now) > limit and not seat.silent:
                seat.silent = True
                self.tell(f"{seat.name} has been silent for {limit:g} s, and is given up")
                node.gateway._io.kill()  # xdist then finds it dead
        if self._scheduler and self._scheduler.items and self._progress.due(now):
            self.tell(summary(self._scheduler.items, self.seats.values(), now))

    def is_wanted(self) -> bool:
        """Whether there is still something to do for another worker."""
        if self._scheduler is None or self._scheduler.items is None:
            return not self._session.config.fleet
        return self._scheduler.has_pending

    def lose(self, text: str) -> None:
        """Note what is lost for the run."""
        self.lost.append(text)
        self.tell(text)

    def tell(self, text: str) -> None:
        """Show a line to the user."""
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if terminal and self._config.option.verbose >= 0:
            if terminal._tw.width_of_current_line:
                terminal.line("")
            terminal.write_line(f"mlms: {text}")

    def _report(self, index: int, reason: str) -> None:
        assert self._scheduler is not None
        assert self._scheduler.items is not None
        nodeid = self._scheduler.items.ids[index]
        path = nodeid.partition("::")[0]
        report = pytest.TestReport(nodeid, (path, None, path), {}, "failed", None, "setup")
        self._complete(report, index, f"not run: {reason}")
        self._config.hook.pytest_runtest_logreport(report=report)

    def _complete(self, report: pytest.TestReport, index: int, message: str) -> None:
        assert self._scheduler is not None
        assert self._scheduler.items is not None
        items = self._scheduler.items
        own = {key: value for key, value in items.needs(index).items() if key not in OF_HOSTS}
        report.longrepr = message
        facts = {
            "verdict": "ERROR",
            "outcome": "failed",
            "phase": report.when,
            "message": message,
            "worker": None,
        }
        report.mlms = {  # type: ignore[attr-defined]
            "nodeid": items.ids[index],
            **own,
            **facts,
            **items.again.get(index, {}),
        }
