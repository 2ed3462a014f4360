"""Patches of pytest-xdist 3.x that keep a run going when a host is lost, and hosts apart.

Without them, xdist ends the whole run with an internal error where a host can't be reached, or
where a worker has an internal error or is gone before it was told so, and it starts a worker that
dies at its start again for ever.
It would also call whatever a worker names as the class of a warning. All that is private to xdist
and is replaced is in this file.
"""

from __future__ import annotations

import contextlib
import queue
import shlex
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import execnet
import pytest
import xdist.dsession
import xdist.workermanage
from execnet.gateway_bootstrap import HostNotFound

from pytest_mlms.distribute.notices import Notices
from pytest_mlms.distribute.remote.hosts import UnfitHost, prepare_spec
from pytest_mlms.distribute.remote.ssh import shown_answer, ssh_command
from pytest_mlms.distribute.remote.workspace_sync import WorkspaceSync

_UNREACHABLE = (
    UnfitHost,
    HostNotFound,
    OSError,
    EOFError,
    execnet.RemoteError,
    execnet.TimeoutError,
)
_NO_CONNECTION = (HostNotFound, BrokenPipeError, EOFError)
"""How execnet reports that ssh ended, which depends on how fast it ended."""

_STOCK_MAKE_RELTOROOT = xdist.workermanage.make_reltoroot
_STOCK_UNSERIALIZE_WARNING = xdist.workermanage.unserialize_warning_message

_RESPAWNS = 2  # of one worker
_SSH_SECONDS = 20  # for a host to say that it is there
_TICK_SECONDS = 1.0
_LAST_REPORTS_SECONDS = 60  # after Ctrl-C, for workers to end
_INTERRUPT_AFTER_SECONDS = 5  # where Ctrl-C did not reach a worker by itself


class RunControl(Protocol):
    """Decisions that the patches leave to the controller, and events that they report to it."""

    def reports_to_pass_on(self, node: Any, report: pytest.TestReport) -> list[pytest.TestReport]:
        """Return the reports that are to go on, now that one has come from a worker."""

    def may_complete(self, node: Any, index: int) -> bool:
        """Return whether an item has run, as a worker says."""

    def may_give_back(self, node: Any, indices: Sequence[int]) -> bool:
        """Return whether a worker was asked for the items that it gives back."""

    def has_items(self, node: Any) -> bool:
        """Return whether a worker has items that it has not run."""

    def interrupt(self, nodes: Iterable[Any]) -> None:
        """Let workers end as by Ctrl-C."""

    def needs_workers(self) -> bool:
        """Return whether there is something to do for another worker."""

    def reschedule(self) -> None:
        """Schedule, after a worker has come or gone."""

    def check_workers(self, now: float) -> None:
        """Give up silent workers; called every second."""


class _Placeholder:
    """An entry among the active nodes of xdist, which keeps its loop running without a worker."""


class XdistPatches:
    """The patches of one run: replaces lost workers, and calls ``control`` every second.

    ``report_in_flight`` is the worker's report that is being passed on.
    """

    def __init__(
        self,
        config: pytest.Config,
        control: RunControl,
        notices: Notices,
        workspace: WorkspaceSync,
    ) -> None:
        self.replacements_pending = 0
        self.report_in_flight: pytest.TestReport | None = None
        self._config = config
        self._control = control
        self._notices = notices
        self._workspace = workspace
        self._session: Any = None
        self._respawns: Counter[int] = Counter()
        self._most_respawns: int | None = None
        self._until_next_tick = _Placeholder()
        self._ended = threading.Event()

    def install(self) -> None:
        """Patch xdist's session, before it starts its workers."""
        session = self._config.pluginmanager.getplugin("dsession")
        self._session = session
        self._most_respawns = session._max_worker_restart
        session._max_worker_restart = None
        session._clone_node = self._replace_worker
        session.worker_mlms_respawn = self._respawn
        session.worker_mlms_tick = self._tick
        session.worker_testreport = self._pass_on_report
        session.worker_internal_error = self._show_internal_error
        session.worker_workerfinished = self._finish_worker
        session.worker_runtest_protocol_complete = self._complete
        session.worker_unscheduled = self._take_back
        session.worker_errordown = self._lose_worker
        xdist.dsession.NodeManager = partial(_NodeManager, self._notices, self._workspace)
        xdist.workermanage.make_reltoroot = self._map_arguments
        xdist.workermanage.unserialize_warning_message = _warning_of
        threading.Thread(target=self._send_ticks, daemon=True).start()

    def remove(self) -> None:
        """Restore the module-level names of xdist, and stop the ticks."""
        self._ended.set()
        xdist.workermanage.make_reltoroot = _STOCK_MAKE_RELTOROOT
        xdist.workermanage.unserialize_warning_message = _STOCK_UNSERIALIZE_WARNING
        xdist.dsession.NodeManager = xdist.workermanage.NodeManager

    @property
    def living_nodes(self) -> set[Any]:
        """The workers that xdist counts on."""
        active = self._session._active_nodes if self._session else ()
        return {node for node in active if not isinstance(node, _Placeholder)}

    @property
    def is_stopping(self) -> bool:
        """True if the run ends before all is done, as after -x."""
        return bool(getattr(self._session, "shouldstop", False))

    def drain(self) -> None:
        """Take in reports after Ctrl-C, until all workers have ended, or a minute is over.

        Workers that the signal did not reach are interrupted. A second Ctrl-C does not wait.
        """
        with contextlib.suppress(KeyboardInterrupt):
            self._drain(time.monotonic())

    def _drain(self, start: float) -> None:
        running = self.living_nodes
        were_interrupted = False
        while running or self._has_events():
            waited = time.monotonic() - start
            if waited > _LAST_REPORTS_SECONDS:
                break
            if waited > _INTERRUPT_AFTER_SECONDS and not were_interrupted:
                self._control.interrupt(running)
                were_interrupted = True
            with contextlib.suppress(queue.Empty):
                event, arguments = self._session.queue.get(timeout=0.1)
                if event == "testreport":
                    self._session.worker_testreport(**arguments)
            running = {node for node in running if not node._down}

    def _has_events(self) -> bool:
        return self._session is not None and not self._session.queue.empty()

    # Replacements for methods of xdist's session

    def _pass_on_report(self, node: Any, rep: pytest.TestReport) -> None:
        self.report_in_flight = rep
        for report in self._control.reports_to_pass_on(node, rep):
            type(self._session).worker_testreport(self._session, node, report)
        self.report_in_flight = None

    def _show_internal_error(self, node: Any, formatted_error: str) -> None:
        """Show the error, and go on: the worker ends now, and then counts as lost."""
        self._notices.show(f"{node.gateway.id} has an internal error:\n{formatted_error}")

    def _complete(self, node: Any, item_index: int, duration: float) -> None:
        if self._control.may_complete(node, item_index):
            session = self._session
            type(session).worker_runtest_protocol_complete(session, node, item_index, duration)

    def _take_back(self, node: Any, indices: Sequence[int]) -> None:
        if self._control.may_give_back(node, indices):
            type(self._session).worker_unscheduled(self._session, node, indices)

    def _lose_worker(self, node: Any, error: object) -> None:
        if node in self._session._active_nodes:  # xdist tells it twice after an error of its own
            type(self._session).worker_errordown(self._session, node, error)

    def _finish_worker(self, node: Any) -> None:
        output = node.workeroutput
        is_stopped = output["exitstatus"] == pytest.ExitCode.INTERRUPTED
        is_stopped = is_stopped or output.get("shouldfail") or output.get("shouldstop")
        if output["exitstatus"] == pytest.ExitCode.INTERNAL_ERROR:
            self._session.worker_errordown(node, "internal error")
        elif not is_stopped and self._control.has_items(node):
            self._session.worker_errordown(node, "it ended before its items")
        elif node in self._session._active_nodes:
            type(self._session).worker_workerfinished(self._session, node)

    def _map_arguments(self, roots: object, arguments: list[str]) -> list[str]:
        return self._workspace.map_arguments(arguments)

    def _replace_worker(self, node: Any) -> None:
        """Replace a worker that died, if there is something to do for it.

        A remote host is first asked whether it is there, in a thread because that may take long.
        """
        spec = node.gateway.spec
        if not (self._control.needs_workers() and self._may_respawn(spec)):
            self._continue_later()
            return
        self._respawns[id(spec)] += 1
        self.replacements_pending += 1
        placeholder = _Placeholder()
        self._session._active_nodes.add(placeholder)
        if spec.ssh:
            arguments = (placeholder, spec)
            threading.Thread(target=self._ask_host, args=arguments, daemon=True).start()
        else:
            self._request_respawn(placeholder, spec, error="")

    def _may_respawn(self, spec: Any) -> bool:
        if self._respawns[id(spec)] >= _RESPAWNS:
            return False
        return self._most_respawns is None or self._respawns.total() < self._most_respawns

    def _ask_host(self, placeholder: _Placeholder, spec: Any) -> None:
        error = _connection_error(spec)
        self._request_respawn(placeholder, spec, error)

    def _request_respawn(self, placeholder: _Placeholder, spec: Any, error: str) -> None:
        arguments = {"placeholder": placeholder, "spec": spec, "error": error}
        self._session.queue.put(("mlms_respawn", arguments))

    def _respawn(self, placeholder: _Placeholder, spec: Any, error: str) -> None:
        """Start a worker in place of a lost one, unless its host has an ``error``."""
        session = self._session
        session._active_nodes.discard(placeholder)
        self.replacements_pending -= 1
        if not error and not session.shuttingdown:
            error = self._start_worker(spec)
        if error:
            self._notices.add_loss(f"{_host_of(spec)} is left out: {error}")
        self._continue()

    def _start_worker(self, spec: Any) -> str:
        """Start a worker; return why that failed, "" where it did not."""
        session = self._session
        try:
            spec.id = None
            session.nodemanager.group.allocate_id(spec)
            node = session.nodemanager.setup_node(spec, session.queue.put)
        except _UNREACHABLE as error:
            return _unreachable_message(spec, error)
        session._active_nodes.add(node)
        return ""

    # Events every second

    def _send_ticks(self) -> None:
        while not self._ended.wait(_TICK_SECONDS):
            self._session.queue.put(("mlms_tick", {}))

    def _continue_later(self) -> None:
        """Continue once xdist has removed the dead worker from its active nodes.

        Without a placeholder xdist may find no active node, and end with an internal error.
        """
        self._session._active_nodes.add(self._until_next_tick)
        self._session.queue.put(("mlms_tick", {}))

    def _tick(self) -> None:
        self._session._active_nodes.discard(self._until_next_tick)
        self._continue()
        self._control.check_workers(time.monotonic())

    def _continue(self) -> None:
        """Use the workers that are there; end the run where there are none, and none will come."""
        session = self._session
        self._control.reschedule()
        if session._active_nodes or session.shuttingdown:
            return
        if not session.sched.tests_finished:
            self._notices.add_loss("no worker is left")
        session.triggershutdown()


class _NodeManager(xdist.workermanage.NodeManager):  # type: ignore[misc]
    """Starts the workers that can be started, and leaves out the others."""

    def __init__(
        self, notices: Notices, workspace: WorkspaceSync, *arguments: Any, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._notices = notices
        self._workspace = workspace

    def setup_nodes(self, putevent: Any) -> list[Any]:
        for spec in self.specs:
            prepare_spec(spec, self._workspace.folder)
        self.config.hook.pytest_xdist_setupnodes(config=self.config, specs=self.specs)
        nodes = []
        errors = []
        for spec in self.specs:
            try:
                nodes.append(self.setup_node(spec, putevent))
            except _UNREACHABLE as error:
                errors.append(_unreachable_message(spec, error))
        if not nodes:
            raise pytest.UsageError("\n".join(["no worker could be started", *errors]))
        for message in errors:
            self._notices.add_loss(message)
        return nodes

    def setup_node(self, spec: Any, putevent: Any) -> Any:
        """Return a worker to which items may be sent while nobody knows yet that it is gone."""
        node = super().setup_node(spec, putevent)
        node.sendcommand = partial(_send_unless_gone, node.sendcommand)
        return node

    def rsync_roots(self, gateway: Any) -> None:
        """Copy nothing, because "mlms worker install" has put pytest on the host."""


def _send_unless_gone(send: Callable[..., None], name: str, **arguments: Any) -> None:
    """Send a command to a worker; where it is gone, xdist's next event of it says so."""
    with contextlib.suppress(OSError):
        send(name, **arguments)


def _warning_of(data: dict[str, Any]) -> warnings.WarningMessage:
    """Return the warning of a worker, of a class of warnings that is known here, or a plain one."""
    known = dict(data)
    if not _is_warning(data["message_module"], data["message_class_name"]):
        known["message_module"] = None  # its text is shown
    if not _is_warning(data["category_module"], data["category_class_name"]):
        known.update(category_module="builtins", category_class_name="UserWarning")
    made: warnings.WarningMessage = _STOCK_UNSERIALIZE_WARNING(known)
    return made


def _is_warning(module: Any, name: Any) -> bool:
    found = getattr(sys.modules.get(module), name or "", None)
    return isinstance(found, type) and issubclass(found, Warning)


def _connection_error(spec: Any) -> str:
    """Return why a host can't be reached by ssh, "" where it can."""
    command = ssh_command(spec.ssh, spec.ssh_config, "true")
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SSH_SECONDS,
            check=False,
        )
    except (subprocess.SubprocessError, OSError):
        return "it does not answer"
    if done.returncode == 0:
        return ""
    return shown_answer(done.stderr) or f"ssh ended with {done.returncode}"


def _host_of(spec: Any) -> str:
    """Return the name of a specification's host, or its text where it has none."""
    return str(spec.ssh).split()[-1] if spec.ssh else str(spec._spec)


def _unreachable_message(spec: Any, error: Exception) -> str:
    """Return why a worker could not be started, and what to do about it."""
    host = _host_of(spec)
    if isinstance(error, _NO_CONNECTION):
        reason = f"no {spec.python} there, or no connection"
    else:
        # of a remote traceback only its last line
        last_line = str(error).strip().rpartition("\n")[2]
        reason = last_line or type(error).__name__
    message = f"{host} can't be used: {reason}"
    if spec.ssh:
        message += f"; see 'mlms worker check {shlex.quote(host)}'"
        message += f" and 'mlms worker install {shlex.quote(host)}'"
    return message
