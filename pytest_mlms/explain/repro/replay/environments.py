"""The environment that a bundle makes for its own pytest-mlms, by the Python that runs it."""

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from typing import Callable, Iterator, NamedTuple, Sequence, Tuple

_LAST_LINES = 12
_PIP_WITH_PYTHON = (22, 3)  # the first with --python
_USER = re.compile(r"(?<=://)[^\s/?#]+@")
_DEFAULT_INDEX = "https://pypi.org/simple"

_COMPLETE = "complete"
"""The name of the file that a complete environment has, in which its wheel's digest is.

Wheels of one name differ where they were made of a tree that somebody works on.
"""


class CannotRun(Exception):
    """A replay can't be done here; the text says why, and what to do."""


class Pip(NamedTuple):
    """How packages are installed into an environment.

    ``command`` is pip of the Python that runs the replay, empty where the environment has to have a
    pip of its own.
    """

    command: Tuple[str, ...]
    source: str


def find_pip() -> Pip:
    """Return pip of this Python, and which index it is set to."""
    command = (sys.executable, "-I", "-m", "pip")
    version = _version_of(_output_of([*command, "--version"]))
    index = _index_of(_output_of([*command, "config", "list"]))
    if version >= _PIP_WITH_PYTHON:
        return Pip(command, index)
    return Pip((), index)


def _output_of(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            universal_newlines=True,
            timeout=120,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout


def _version_of(text: str) -> Tuple[int, ...]:
    found = re.match(r"pip (\d+)\.(\d+)", text)
    return tuple(int(number) for number in found.groups()) if found else (0, 0)


def _index_of(settings: str) -> str:
    """Return the index of pip's settings, without a user and a password."""
    found = _DEFAULT_INDEX
    for line in settings.splitlines():
        key, _, value = line.partition("=")
        if key.endswith(".index-url"):
            found = value.strip("'\"") or found
    return hide_user(found)


def hide_user(address: str) -> str:
    """Return an address without a user and a password."""
    return _USER.sub("***@", address)


def make_environment(pip: Pip, folder: str, wheel: str) -> str:
    """Make an environment with a wheel and what it requires, unless it is there.

    Return its Python. Raises CannotRun with the last lines of what failed; nothing is left behind
    then.
    """
    python = os.path.join(folder, "bin", "python")
    mark = os.path.join(folder, _COMPLETE)
    name = os.path.basename(wheel)
    with open(wheel, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if not _has(mark, digest):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            bare = ["--without-pip"] if pip.command else []
            venv = [sys.executable, "-I", "-m", "venv", *bare, folder]
            _run(venv, "making an environment")
            command = [python, "-I", "-m", "pip"]
            if pip.command:
                command = [*pip.command, "--python", python]
            options = ["--disable-pip-version-check", "--no-input", "--no-compile"]
            _run([*command, "install", *options, wheel], "installing %s" % name)
            with open(mark, "w") as made:
                made.write(digest)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return python


def _has(mark: str, digest: str) -> bool:
    if not os.path.exists(mark):
        return False
    with open(mark) as file:
        return file.read() == digest


@contextlib.contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Hold signals back until the function that it yields is called, or to its end.

    The exception of one that comes while a process starts would leave the process unknown.
    """
    former = signal.pthread_sigmask(
        signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    )

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)

    try:
        yield release
    finally:
        release()


def _run(command: Sequence[str], doing: str) -> None:
    """Run a command whose processes end with it. Raises CannotRun with its last lines."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    with signals_held() as release:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            errors="replace",
            env=variables,
            start_new_session=True,
            preexec_fn=release,  # noqa: PLW1509  it has one thread
        )
        try:
            release()
            output, _ = process.communicate()
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode:
        lines = [line for line in output.splitlines() if line.strip()][-_LAST_LINES:]
        shown = "".join("\n  %s" % hide_user(line) for line in lines)
        problem = "%s ended with status %d:%s" % (doing, process.returncode, shown)
        raise CannotRun(problem)
