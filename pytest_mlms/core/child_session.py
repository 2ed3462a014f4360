"""A session of pytest as a child: how it is started, its run's folder, and its end with ours.

Commands wait for it, and the portal goes on meanwhile: both start it by ``starting``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from pytest_mlms.core import lifeline
from pytest_mlms.core.serialization import lines_from
from pytest_mlms.core.settings import OF_A_COMMAND
from pytest_mlms.core.starts import module_command

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class SessionStart:
    """How a session is started: its command, and the keywords of ``subprocess.Popen``.

    It goes on as long as ``lifeline`` is open, which the kernel closes with this process.
    """

    command: Sequence[str]
    keywords: Mapping[str, Any]
    lifeline: IO[bytes]


@contextlib.contextmanager
def starting(
    arguments: Sequence[str], environment: Mapping[str, str], of_python: Sequence[str] = ()
) -> Iterator[SessionStart]:
    """Yield how pytest is started with arguments, in a session and a group of its own.

    Whoever started it closes the lifeline when it has ended. ``of_python`` are options of its
    interpreter.
    """
    python, *words = module_command("pytest", with_folder=True)
    reading, writing = os.pipe()
    line = open(writing, "wb", buffering=0)  # noqa: SIM115  it stays open after this
    try:
        yield SessionStart(
            command=[python, *of_python, *words, "-p", lifeline.__name__, *arguments],
            keywords={
                "env": {**environment, lifeline.DESCRIPTOR: str(reading)},
                "start_new_session": True,
                "pass_fds": [reading],
            },
            lifeline=line,
        )
    except BaseException:
        line.close()
        raise
    finally:
        os.close(reading)


def kill(session: int) -> None:
    """End the process group of a session; the supervisors of its agents end those."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


@dataclass(frozen=True)
class ChildOptions:
    """Common settings of the children of a command; paths as for pytest.

    ``variables`` are added to their environment, and ``more`` to their arguments.
    """

    results: Path
    cache: Path
    predictors: tuple[Path, ...] = ()
    allow_code: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    env_passthrough: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The options of pytest."""
        arguments = [f"--mlms-results={self.results}", f"--mlms-cache={self.cache}"]
        arguments += [f"--mlms-predictors={folder}" for folder in self.predictors]
        arguments += [f"--mlms-env-passthrough={name}" for name in self.env_passthrough]
        if self.allow_code:
            arguments.append("--mlms-allow-code")
        return [*arguments, *self.more]


@dataclass(frozen=True)
class ChildResult:
    """The exit status of a session, and its run's folder; None where it made none."""

    status: int
    run: Path | None


def run_child(
    arguments: Sequence[str], options: ChildOptions, marker: str, output: IO[bytes] | None = None
) -> ChildResult:
    """Run pytest to its end, with its output on our standard error, or in the file ``output``.

    ``marker`` is a part of one of the arguments that no other session has: its run is found by it.
    It ends with us as that of ``run_to_end``. The link ``latest`` stays at the run that it names. A
    portal, a history and documents that the project's settings, or PYTEST_ADDOPTS, have for its own
    runs get nothing of it.
    """
    before = _runs(options.results)
    latest = _latest(options.results)
    words = [*arguments, *options.arguments]
    environment = {**os.environ, OF_A_COMMAND: "1", **options.variables}
    try:
        status = run_to_end(words, environment, stdout=output or sys.stderr, stderr=output)
    finally:
        run = _find(_runs(options.results) - before, marker)
        if run is not None and latest and _latest(options.results) == run.name:
            _set_latest(options.results, latest)
    return ChildResult(status, run)


def run_to_end(arguments: Sequence[str], environment: Mapping[str, str], **streams: Any) -> int:
    """Run pytest to its end; return its status. ``streams`` are those of ``subprocess.Popen``.

    Where this process is interrupted, terminated or hung up, the child is interrupted and waited
    for, so that neither it nor its agents stay: KeyboardInterrupt is raised after that. It is
    interrupted also where this process is killed.
    """
    with (
        _interrupts_held() as release,
        _ended_by_signals(),
        starting(arguments, environment) as start,
    ):
        child = subprocess.Popen(start.command, **start.keywords, **streams)
        try:
            release()
            return child.wait()
        finally:
            _end(child)
            start.lifeline.close()


def _latest(results: Path) -> str:
    """Return the name of the run that ``latest`` links to; empty where there is no such link."""
    link = results / "latest"
    return os.readlink(link) if link.is_symlink() else ""


def _set_latest(results: Path, run: str) -> None:
    link = results / f".latest-{run}"
    with contextlib.suppress(OSError):
        link.symlink_to(run)
        os.replace(link, results / "latest")


@contextlib.contextmanager
def _interrupts_held() -> Iterator[Callable[[], None]]:
    """Hold back the signals that end us until the function that it yields is called, or to its end.

    Else the exception of one that comes while a child starts could leave the child unknown. The
    child holds them back, too, until its lifeline is there.
    """
    former = signal.pthread_sigmask(signal.SIG_BLOCK, lifeline.HELD)

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)

    try:
        yield release
    finally:
        release()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a child that still runs, and kill one that doesn't end."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(lifeline.KILLED_AFTER)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        kill(child.pid)
        child.wait()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have signals that end this process raise KeyboardInterrupt, as Ctrl-C does.

    One that is ignored, as SIGHUP is below nohup, stays so.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    former = {}
    try:
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                former[number] = signal.signal(number, interrupt)
    except ValueError:  # signals are the main thread's
        pass
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _runs(results: Path) -> set[Path]:
    if not results.is_dir():
        return set()
    return {path for path in results.iterdir() if path.is_dir() and not path.is_symlink()}


def _find(runs: set[Path], marker: str) -> Path | None:
    """Return the run whose command has the marker, of those that began meanwhile."""
    for run in runs:
        with contextlib.suppress(OSError), (run / "results.jsonl").open("rb") as file:
            first = next(lines_from(file), None)
            command = ((first and first.content) or {}).get("command")
            if isinstance(command, list) and any(marker in str(word) for word in command):
                return run
    return None
