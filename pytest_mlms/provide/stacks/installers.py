"""Installing a stack's packages by pip or uv, and listing what was installed."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from pytest_mlms.core.errors import StackError, Unavailable
from pytest_mlms.core.files import free_space
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.interpreters import Interpreter
from pytest_mlms.provide.stacks.seeds import copy_seed, provide_seed
from pytest_mlms.provide.stacks.variables import installer_variables

Show = Callable[[str], None]
"""Called with the current step of an installation, and with an empty text at its end."""

_running: set[subprocess.Popen[bytes]] = set()
"""The installers that run now, in any thread of this process."""

_GUARD = Path(__file__).with_name("guard.py")
_KEPT_LINES = 10_000  # of an installer's output; `pip freeze` needs all of its lines
_FULL = 1 << 20  # bytes; a disk with less is full for an installation
_SHOWN_LINES = 12  # of an installer that failed
_POLL = 0.2  # seconds between two looks at whether an installer that prints nothing has ended
_CHUNK = 1 << 16  # bytes
_GRACE_SECONDS = 5  # for an installer that was interrupted
_STEP = re.compile(
    r"(Collecting|Downloading|Building|Installing|Preparing|Resolved|Prepared|Installed) ?.*"
)
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*(==| @ )")
_PIP_FOR: dict[tuple[int, ...], str] = {(3, 6): "pip==21.3.1", (3, 7): "pip==24.0"}
"""The last pip for each Python whose own pip is too old for today's wheels."""


def install(
    stack: Stack, interpreter: Interpreter, folder: Path, requirements: Sequence[str], show: Show
) -> list[str]:
    """Make a virtual environment in ``folder`` and return its exact packages, as name==version.

    With a lock file the installer resolves nothing: the file names every package. Raises
    StackError with the installer's last lines, Unavailable where uv is asked for and not there.
    """
    options = list(stack.options)
    if stack.lock and "--no-deps" not in options:
        options.append("--no-deps")
    runner = _InstallerRunner(stack, interpreter, folder.parent, show)
    make = _make_with_uv if stack.installer == "uv" else _make_with_pip
    try:
        lines = make(runner, folder, [*options, *requirements])
    finally:
        show("")
    packages = [line for line in lines if _PACKAGE.match(line)]
    return sorted(packages, key=str.lower)


class _InstallerRunner:
    """Runs the programs of one installation and shows their steps.

    An interruption ends the running program with all of its children.
    """

    def __init__(self, stack: Stack, interpreter: Interpreter, cache: Path, show: Show) -> None:
        self.stack = stack
        self.interpreter = interpreter
        self._cache = cache
        self._show = show

    def run(self, command: Sequence[str], doing: str) -> list[str]:
        """Run a command and return the lines of its output; ``doing`` describes it.

        Raises StackError where it fails.
        """
        self._show(doing)
        lines: deque[str] = deque(maxlen=_KEPT_LINES)
        variables = installer_variables(os.environ, self.stack.env_passthrough)
        with _started(command, variables) as process:
            for line in _lines_of(process):
                lines.append(line.rstrip())
                self._show_step(line)
            status = process.wait()
        if status:
            failure = f"{doing} ended with status {status}"
            raise StackError(self._report(failure, list(lines)))
        return list(lines)

    def _show_step(self, line: str) -> None:
        step = _STEP.match(line.strip())
        if step:
            self._show(step[0])

    def _report(self, failure: str, lines: Sequence[str]) -> str:
        shown = lines[-_SHOWN_LINES:]
        version = self.interpreter.version
        headline = f"stack {self.stack.name} can't be made with Python {version}"
        full = self._full_folders(any("No space left" in line for line in lines))
        if full:
            advice = "make room, or name another cache with --mlms-cache"
            headline += f": no space left in {full}; {advice}"
        report = [headline, f"  {failure}:"]
        for line in shown:
            report.append(f"    {line}")
        return "\n".join(report)

    def _full_folders(self, is_said: bool) -> str:
        """Return the folders that are full, or those that may be where the program says so.

        What ``venv`` starts says only with which status it ended.
        """
        places = [self._cache, Path(tempfile.gettempdir())]
        free = {place: free_space(place) for place in places}
        full = [place for place, size in free.items() if size is not None and size < _FULL]
        if full or not is_said:
            return ", ".join(map(str, full))
        return " or ".join(map(str, places))


def _lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yield a process's output until it ends; its children may keep the pipe open."""
    assert process.stdout
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            has_ended = process.poll() is not None
            if selector.select(0 if has_ended else _POLL):
                data = os.read(process.stdout.fileno(), _CHUNK)
                *lines, rest = (rest + data).replace(b"\r", b"\n").split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
                has_ended = not data
            if has_ended:
                break
    if rest:
        yield rest.decode(errors="replace")


@contextlib.contextmanager
def _started(
    command: Sequence[str], variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a process group of its own, which is ended where the block fails.

    It is interrupted and then killed: pip removes its temporary files, gigabytes of some packages.
    Where this process is killed, the guard that starts the command does the same.
    """
    reading, writing = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), *command],
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={name: text for name, text in variables.items() if not name.startswith("PYTHON")},
            start_new_session=True,
        )
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    _running.add(process)
    with os.fdopen(writing, "wb"), process:
        try:
            yield process
        finally:
            _running.discard(process)
            if process.poll() is None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt an installer, and kill what goes on after a grace, with its children."""
    try:
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGINT)
            process.wait(_GRACE_SECONDS)
    finally:  # also where Ctrl-C is pressed once more
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_running(how: signal.Signals) -> None:
    """Send a signal to the installers that run, with their children: in other threads, say."""
    for process in list(_running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, how)


_PIP_INSTALL = ("-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input")


def _make_with_pip(runner: _InstallerRunner, folder: Path, arguments: Sequence[str]) -> list[str]:
    """Make an environment, install into it, and return the lines of ``pip freeze``."""
    interpreter = runner.interpreter
    newer = _PIP_FOR.get(interpreter.release, "")
    seed = provide_seed(interpreter, newer, folder.parent / "seeds", partial(_make_seed, runner))
    venv = [str(interpreter.path), "-I", "-m", "venv", "--without-pip", str(folder)]
    runner.run(venv, "making the environment")
    copy_seed(seed, folder)
    python = str(folder / "bin" / "python")
    install = [python, *_PIP_INSTALL, "--no-color", "--progress-bar=off"]
    runner.run([*install, *arguments], "installing")
    freeze = [python, "-I", "-m", "pip", "freeze", "--disable-pip-version-check", "--all"]
    packages = runner.run(freeze, "listing packages")
    return [line for line in packages if not line.startswith("pip==")]


def _make_seed(runner: _InstallerRunner, folder: Path) -> None:
    """Make an environment with pip in it, of a release that can read today's wheels."""
    interpreter = runner.interpreter
    runner.run([str(interpreter.path), "-I", "-m", "venv", str(folder)], "preparing pip")
    newer = _PIP_FOR.get(interpreter.release)
    if newer:
        python = str(folder / "bin" / "python")
        runner.run([python, *_PIP_INSTALL, "--no-color", "-q", newer], "renewing pip")


def _make_with_uv(runner: _InstallerRunner, folder: Path, arguments: Sequence[str]) -> list[str]:
    """Make an environment, install into it, and return the lines of ``uv pip freeze``."""
    uv = shutil.which("uv")
    if uv is None:
        name = runner.stack.name
        raise Unavailable(
            f"stack {name} is to be installed by uv, which isn't there; pip install uv"
        )
    base = str(runner.interpreter.path)
    venv = [uv, "venv", "--no-project", "--python", base, str(folder)]
    runner.run(venv, "making the environment")
    python = ["--python", str(folder / "bin" / "python")]
    # As pip does it: without bytecode agents start later and take more memory.
    install = [
        uv,
        "pip",
        "install",
        "--compile-bytecode",
        "--color=never",
        "--no-progress",
        *python,
    ]
    runner.run([*install, *arguments], "installing")
    freeze = [uv, "pip", "freeze", *python]
    return runner.run(freeze, "listing packages")
