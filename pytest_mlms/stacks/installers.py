"""pip and uv as programs: an environment's packages, and what they came to be."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_mlms.errors import StackError, Unavailable
from pytest_mlms.records import Stack
from pytest_mlms.stacks.interpreters import Interpreter

__all__ = ["Show", "install"]

Show = Callable[[str], None]
"""Called with what an installer does now, and with an empty text when it is done."""

_LAST = 12  # lines of an installer that failed
_STEP = re.compile(
    r"(Collecting|Downloading|Building|Installing|Preparing|Resolved|Prepared|Installed) ?.*"
)
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*(==| @ )")
_PIP_FOR = {(3, 6): "pip==21.3.1", (3, 7): "pip==24.0"}
"""The last pip of a Python whose own is too old for today's wheels."""


def install(
    stack: Stack, interpreter: Interpreter, folder: Path, requirements: Sequence[str], show: Show
) -> list[str]:
    """Make an environment in ``folder`` and return its exact packages; raises StackError with the
    last lines said.

    With a lock nothing else is looked for: what it names is everything.
    """
    options = [
        *stack.options,
        *(["--no-deps"] if stack.lock and "--no-deps" not in stack.options else []),
    ]
    run = _Run(stack, interpreter, show)
    try:
        made = _with_uv if stack.installer == "uv" else _with_pip
        return sorted(made(run, folder, [*options, *requirements]), key=str.lower)
    finally:
        show("")


def _with_pip(run: _Run, folder: Path, arguments: Sequence[str]) -> list[str]:
    run(["-m", "venv", str(folder)], "making the environment")
    python = [str(folder / "bin" / "python"), "-s", "-m", "pip"]
    quiet = ["--disable-pip-version-check", "--no-input", "--no-color"]
    if run.interpreter.release in _PIP_FOR:
        run([*python, "install", *quiet, "-q", _PIP_FOR[run.interpreter.release]], "renewing pip")
    run([*python, "install", *quiet, "--progress-bar=off", *arguments], "installing")
    frozen = run([*python, "freeze", *quiet[:1], "--all"], "listing packages")
    return [line for line in frozen if _PACKAGE.match(line) and not line.startswith("pip==")]


def _with_uv(run: _Run, folder: Path, arguments: Sequence[str]) -> list[str]:
    uv = shutil.which("uv")
    if uv is None:
        raise Unavailable(
            f"stack {run.stack.name} is to be installed by uv, which isn't there; pip install uv"
        )
    run(
        [uv, "venv", "--no-project", "--python", str(run.interpreter.path), str(folder)],
        "making the environment",
    )
    python = ["--python", str(folder / "bin" / "python")]
    run([uv, "pip", "install", "--color=never", "--no-progress", *python, *arguments], "installing")
    return [
        line
        for line in run([uv, "pip", "freeze", *python], "listing packages")
        if _PACKAGE.match(line)
    ]


class _Run:
    """Runs a program of a stack's installation, showing its steps.

    Ends its whole group where we are interrupted.
    """

    def __init__(self, stack: Stack, interpreter: Interpreter, show: Show) -> None:
        self.stack, self.interpreter, self._show = stack, interpreter, show

    def __call__(self, command: Sequence[str], doing: str) -> list[str]:
        """Return the lines that it wrote to standard output; raises StackError."""
        if command[0].startswith("-"):
            command = [str(self.interpreter.path), "-s", *command]
        self._show(doing)
        said: deque[str] = deque(maxlen=10_000)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
        assert process.stdout
        try:
            for line in process.stdout:
                said.append(line.rstrip())
                if step := _STEP.match(line.strip()):
                    self._show(step[0])
            status = process.wait()
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.stdout.close()
        if status:
            raise StackError(self._report(command, doing, status, list(said)[-_LAST:]))
        return list(said)

    def _report(self, command: Sequence[str], doing: str, status: int, last: Sequence[str]) -> str:
        lines = "\n".join(f"    {line}" for line in last)
        full = any("No space left" in line for line in last)
        hint = "; make room, or name another cache with --mlms-cache" if full else ""
        what = f"stack {self.stack.name} can't be made with Python {self.interpreter.version}{hint}"
        return f"{what}\n  {doing} ended with status {status}:\n{lines}"
