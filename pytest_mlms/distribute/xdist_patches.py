"""Where stock xdist loses a whole run to one host: what is private to xdist 3.x, and is replaced,
is in this file.

A host that can't be reached is an INTERNALERROR there, as is one in a worker, and a worker that
dies at its start is started for ever.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import execnet
import pytest
import xdist.dsession
import xdist.workermanage
from execnet.gateway_bootstrap import HostNotFound

from pytest_mlms.distribute.remote.hosts import Unfit, prepare_spec

if TYPE_CHECKING:
    from pytest_mlms.distribute.controller import Controller

__all__ = ["XdistPatches"]

_UNREACHABLE = (Unfit, HostNotFound, OSError, EOFError, execnet.RemoteError, execnet.TimeoutError)
_STOCK_PATHS = xdist.workermanage.make_reltoroot
_RESPAWNS = 2  # of one worker
_CONNECT = 10  # seconds
_TICK = 1.0  # seconds
_LAST_WORDS, _BY_ITSELF = 60, 5  # seconds


@dataclass(eq=False)
class _Place:
    """Stands among xdist's workers for one that is to be replaced, which keeps its loop running
    until the answer.
    """

    spec: Any  # equal to that of its neighbours where several are asked for at once


class XdistPatches:
    """Keeps xdist's session going while hosts come and go, and looks every second for those that
    are silent.
    """

    def __init__(self, config: pytest.Config, controller: Controller) -> None:
        self.awaited = 0
        self._config = config
        self._controller = controller
        self._session: Any = None
        self._respawned: Counter[int] = Counter()
        self._limit: int | None = None
        self._ended = threading.Event()

    @property
    def living(self) -> set[Any]:
        """The workers that xdist counts on."""
        return set(self._session._active_nodes) if self._session else set()

    @property
    def stopping(self) -> bool:
        """Whether the run ends before all is done, as after -x."""
        return bool(getattr(self._session, "shouldstop", False))

    def install(self) -> None:
        """Take over, before the workers are started."""
        self._session = session = self._config.pluginmanager.getplugin("dsession")
        self._limit, session._max_worker_restart = session._max_worker_restart, None
        session._clone_node = self._clone
        session.worker_mlms_respawn = self._respawn
        session.worker_mlms_tick = self._tick
        session.worker_testreport = self._testreport
        session.worker_internal_error = self._internal_error
        session.worker_workerfinished = self._finished
        controller = self._controller

        class Manager(xdist.workermanage.NodeManager):  # type: ignore[misc]
            """Leaves out what can't be reached."""

            def setup_nodes(self, putevent: Any) -> list[Any]:
                for spec in self.specs:
                    prepare_spec(spec, controller.mirror.folder)
                self.config.hook.pytest_xdist_setupnodes(config=self.config, specs=self.specs)
                nodes, faults = [], []
                for spec in self.specs:
                    try:
                        nodes.append(self.setup_node(spec, putevent))
                    except _UNREACHABLE as error:
                        faults.append(_unreachable(spec, error))
                if not nodes:
                    raise pytest.UsageError("\n".join(["no worker could be started", *faults]))
                for fault in faults:
                    controller.lose(fault)
                return nodes

            def rsync_roots(self, gateway: Any) -> None:
                """Leave pytest to 'mlms worker install', which puts the same version there once."""

        xdist.workermanage.make_reltoroot = lambda roots, arguments: controller.mirror.arguments(
            arguments
        )
        xdist.dsession.NodeManager = Manager
        threading.Thread(target=self._ticks, daemon=True).start()

    def stop(self) -> None:
        """Stop looking."""
        self._ended.set()
        xdist.workermanage.make_reltoroot = _STOCK_PATHS
        xdist.dsession.NodeManager = xdist.workermanage.NodeManager

    def drain(self) -> None:
        """After Ctrl-C: take in reports until all workers have ended.

        Tell those that it did not reach.
        """
        running, began, told = self.living & self._controller.seats.keys(), time.monotonic(), False
        with contextlib.suppress(KeyboardInterrupt):  # once more: don't wait
            while running or (self._session and not self._session.queue.empty()):
                waited = time.monotonic() - began
                if waited > _LAST_WORDS:
                    break
                if waited > _BY_ITSELF and not told:
                    self._controller.interrupt(running)
                    told = True
                with contextlib.suppress(queue.Empty):
                    name, facts = self._session.queue.get(timeout=0.1)
                    if name == "testreport":
                        self._session.worker_testreport(**facts)
                running = {node for node in running if not node._down}

    def _testreport(self, node: Any, rep: pytest.TestReport) -> None:
        for report in self._controller.counted(node, rep):
            type(self._session).worker_testreport(self._session, node, report)

    def _internal_error(self, node: Any, formatted_error: str) -> None:
        """Show what went wrong in a worker, which ends now: a lost worker is no lost run."""
        self._controller.tell(f"{node.gateway.id} has an internal error:\n{formatted_error}")

    def _finished(self, node: Any) -> None:
        if node.workeroutput["exitstatus"] == pytest.ExitCode.INTERNAL_ERROR:
            self._session.worker_errordown(node, "internal error")
        else:
            type(self._session).worker_workerfinished(self._session, node)

    def _clone(self, node: Any) -> None:
        """Replace a worker that died, if that is worth it.

        A remote host is first asked whether it is there.
        """
        spec = node.gateway.spec
        if not self._controller.is_wanted() or not self._may_respawn(spec):
            self._later()
            return
        self._respawned[id(spec)] += 1
        self.awaited += 1
        place = _Place(spec)
        self._session._active_nodes.add(place)
        if spec.ssh:
            threading.Thread(target=self._ask, args=(place,), daemon=True).start()
        else:
            self._session.queue.put(("mlms_respawn", {"place": place, "fault": ""}))

    def _may_respawn(self, spec: Any) -> bool:
        within = self._limit is None or sum(self._respawned.values()) < self._limit
        return within and self._respawned[id(spec)] < _RESPAWNS

    def _ask(self, place: _Place) -> None:
        spec = place.spec
        options = ["-o", f"ConnectTimeout={_CONNECT}", "-o", "BatchMode=yes"]
        config = ["-F", str(spec.ssh_config)] if spec.ssh_config else []
        fault = "it does not answer"
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            command = ["ssh", "-n", *config, *options, *spec.ssh.split(), "true"]
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=2 * _CONNECT, check=False
            )
            fault = (
                done.stderr.strip() or f"ssh ended with {done.returncode}"
                if done.returncode
                else ""
            )
        self._session.queue.put(("mlms_respawn", {"place": place, "fault": fault}))

    def _respawn(self, place: _Place, fault: str) -> None:
        session, spec = self._session, place.spec
        session._active_nodes.discard(place)
        self.awaited -= 1
        if not fault and not session.shuttingdown:
            try:
                spec.id = None
                session.nodemanager.group.allocate_id(spec)
                session._active_nodes.add(session.nodemanager.setup_node(spec, session.queue.put))
            except _UNREACHABLE as error:
                fault = _unreachable(spec, error)
        if fault:
            self._controller.lose(f"{_where(spec)} is left out: {fault}")
        self._go_on()

    def _later(self) -> None:
        """Look again once xdist has taken the dead worker off its list."""
        self._session.queue.put(("mlms_tick", {}))
        self._session._active_nodes.add(
            self
        )  # or xdist would find nobody, and end with an internal error

    def _ticks(self) -> None:
        while not self._ended.wait(_TICK):
            self._session.queue.put(("mlms_tick", {}))

    def _tick(self) -> None:
        self._session._active_nodes.discard(self)
        self._go_on()
        self._controller.tick(time.monotonic())

    def _go_on(self) -> None:
        """Use who is there; where nobody is, and nobody comes, the run is over."""
        session = self._session
        self._controller.schedule()
        if not session._active_nodes and not session.shuttingdown:
            if not session.sched.tests_finished:
                self._controller.lose("no worker is left")
            session.triggershutdown()


def _where(spec: Any) -> str:
    return str(spec.ssh).split()[-1] if spec.ssh else str(spec._spec)


def _unreachable(spec: Any, error: Exception) -> str:
    where = _where(spec)
    said = (
        str(error).strip().rpartition("\n")[2] or type(error).__name__
    )  # of a traceback from there, what it says
    if isinstance(
        error, (HostNotFound, BrokenPipeError, EOFError)
    ):  # as ssh was quick or slow to end
        said = f"no {spec.python} there, or no connection"
    advice = (
        f"; see 'mlms worker check {where}' and 'mlms worker install {where}'" if spec.ssh else ""
    )
    return f"{where} can't be used: {said}{advice}"
