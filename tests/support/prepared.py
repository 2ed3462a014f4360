"""pytest in processes that are forked from one that has imported it already.

What every run of a project imports takes longer than most of what is asked of it. A fork begins
behind that; its folder, variables, streams and exit are those of a process that was started. Runs
are started nevertheless where something may differ: variables that are read by imports, pipes.

Run by its path with the number of a socket, this file is what is forked.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

IMPORTED = (
    "archspec.cpu",
    "numpy",
    "PIL.ImageFile",
    "psutil",
    "pynvml",
    "scipy.special",
    "pytest_mlms.decide.expected",
    "pytest_mlms.items.collect",
    "pytest_mlms.items.item_outputs",
    "pytest_mlms.items.suite",
    "pytest_mlms.items.uncollected",
    "pytest_mlms.keep.results.recorder",
    "pytest_mlms.keep.results.results_reader",
    "pytest_mlms.measure.agent.launching",
    "pytest_mlms.measure.agent.opening",
    "pytest_mlms.measure.evaluate.performance",
    "pytest_mlms.measure.evaluate.scoring",
    "pytest_mlms.measure.evaluate.tasks.classification",
    "pytest_mlms.measure.pipeline",
    "pytest_mlms.provide.artifacts.fetch",
    "pytest_mlms.provide.host.matching",
    "pytest_mlms.provide.stacks.exact_packages",
    "pytest_mlms.show.report.ci_outputs",
    "pytest_mlms.show.report.predictions",
    "pytest_mlms.show.report.terminal",
    "pytest_mlms.show.report.worst_examples",
)
"""What most runs import after pytest and its plugins."""

READ_LATE = (
    "COLUMNS",
    "HOME",
    "MLMS_",
    "PIP_",
    "PYTEST_",
    "PYTHONPATH",
    "PY_COLORS",
    "USERPROFILE",
)
"""How the variables begin that nothing reads before a run has begun."""

_COMMAND = [sys.executable, "-mpytest"]
_MOST = 200_000
"""Bytes of a message."""


class Server:
    """A process that is forked; it is started for the first run, and ends with this process."""

    def __init__(self) -> None:
        self.connection: socket.socket | None = None
        self.free = threading.Lock()
        self._environment = dict(os.environ)

    def fork(self, command: Sequence[Any], streams: Sequence[Any]) -> Fork | None:
        """Begin a run of pytest in the current folder; None if it has to be started instead.

        ``streams`` are files for standard output and error.
        """
        words = [os.fspath(word) for word in command]
        changed = {name for name, _ in self._environment.items() ^ os.environ.items()}
        is_alike = all(name.startswith(READ_LATE) for name in changed)
        if words[:2] != _COMMAND or not is_alike or any(type(one) is int for one in streams):
            return None
        request = json.dumps([words[2:], os.getcwd(), dict(os.environ)]).encode()
        if len(request) > _MOST or not self.free.acquire(blocking=False):
            return None
        self.connection = self.connection or self._start()
        socket.send_fds(self.connection, [request], [stream.fileno() for stream in streams])
        return Fork(self.connection, self.free)

    def _start(self) -> socket.socket:
        """Start the process, which is no child: tests look at their own children."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            subprocess.run(
                [sys.executable, __file__, str(theirs.fileno())],
                check=True,
                cwd="/",
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        return ours


class Fork:
    """A run, as pytester waits for it and kills it."""

    stdin = None

    def __init__(self, connection: socket.socket, free: threading.Lock) -> None:
        self._connection = connection
        self._free = free
        self._pid = int(connection.recv(_MOST))

    def wait(self, timeout: float | None = None) -> int:
        """Return the status, as ``subprocess.Popen.wait`` does."""
        self._connection.settimeout(timeout)
        try:
            status = int(self._connection.recv(_MOST))
        except TimeoutError:
            raise subprocess.TimeoutExpired(_COMMAND, timeout or 0) from None
        self._connection.settimeout(None)
        self._free.release()
        return status

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


def _forks(connection: socket.socket) -> Iterator[None]:
    """Yield once in a fork for each request."""
    while True:
        message, streams, _, _ = socket.recv_fds(connection, _MOST, 2)
        if not message:
            return
        with warnings.catch_warnings():  # of Python 3.12: threads of libraries, which may be forked
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            connection.close()
            _become(json.loads(message), streams)
            yield
            return
        for stream in streams:
            os.close(stream)
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: Any, streams: list[int]) -> None:
    """Be as ``python -m pytest`` that pytester starts, which adds the folder to PYTHONPATH."""
    arguments, folder, environment = request
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    own = _paths(os.environ)
    paths = [folder, *_paths(environment)]
    os.environ.clear()
    os.environ.update(environment, PYTHONPATH=os.pathsep.join(paths))
    sys.argv[1:] = arguments
    sys.path[: 1 + len(own)] = [folder, *paths]
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _paths(environment: Mapping[str, str]) -> list[str]:
    return list(filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)))


def _main() -> None:
    import pytest

    connection = socket.socket(fileno=int(sys.argv[1]))
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.path[0] = os.getcwd()
    without = ("hypothesispytest", "anyio", "benchmark", "xdist", "xdist.looponfail")
    pytest.main(["-VV", *(f"-pno:{name}" for name in without)])  # which imports plugins
    for name in IMPORTED:
        importlib.import_module(name)
    for _ in _forks(connection):
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
