"""Which Python a path is, and where one of a version is on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pytest_mlms.errors import StackError, Unavailable

__all__ = ["Interpreter", "find_interpreter", "probe"]

OLDEST = (3, 6)
_SECONDS = 60  # for an interpreter to say what it is
_ASK = (
    "import json, platform as p, sys, sysconfig; "
    "print(json.dumps([p.python_version(), p.python_implementation(), sysconfig.get_platform(), sys.prefix]))"
)


class Interpreter(NamedTuple):
    """A Python that answers.

    Its version such as 3.11.7, who made it, its platform, and the folder it is in.
    """

    path: Path
    version: str
    implementation: str
    platform: str
    prefix: Path

    @property
    def release(self) -> tuple[int, ...]:
        """The version's numbers."""
        return tuple(int(part) for part in self.version.split("+")[0].split(".")[:2])


def probe(path: str | Path) -> Interpreter:
    """Return what the interpreter at ``path`` (or of this name on PATH) says of itself.

    Raises Unavailable where there is none, StackError where it is something else or too old.
    """
    found = shutil.which(str(path))
    if found is None:
        what = "is no program that may be run" if Path(path).exists() else "isn't there"
        raise Unavailable(f"the interpreter {path} {what}; install it, or name another")
    return _probe(found, os.stat(found).st_mtime_ns)


@lru_cache(maxsize=256)
def _probe(path: str, modified: int) -> Interpreter:
    status, said = _ask([path, "-E", "-s", "-B", "-c", _ASK])
    try:
        version, implementation, platform, prefix = json.loads(said)
    except (ValueError, TypeError):
        last = said.strip().splitlines()[-1:]
        raise StackError(
            f"{path} is not a Python interpreter: asked for its version, it {status}"
            + "".join(f" and said {line!r}" for line in last)
        ) from None
    made = Interpreter(Path(path), version, implementation, platform, Path(prefix))
    if made.release < OLDEST:
        raise StackError(
            f"{path} is Python {version}; agents need {'.'.join(map(str, OLDEST))} or later"
        )
    return made


def _ask(command: Sequence[str]) -> tuple[str, str]:
    """Run a command; return how it ended, in words, and what it said."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"gave no answer in {_SECONDS} s", ""
    except OSError as error:
        return f"can't be run ({error.strerror})", ""
    return f"ended with status {done.returncode}", done.stdout or done.stderr


@lru_cache(maxsize=64)
def find_interpreter(version: str) -> Interpreter:
    """Return a Python of ``version``, 3.11 or 3.11.7; raises Unavailable, which says what to
    install.

    Looked at, in this order: the one that runs this, PATH, pyenv's, uv's, and what the launcher
    ``py`` knows.
    """
    for path in _candidates(version):
        try:
            found = probe(path)
        except (
            StackError,
            Unavailable,
        ):  # pyenv leaves programs on PATH that only say that they are not active
            continue
        if found.implementation == "CPython" and f"{found.version}.".startswith(f"{version}."):
            return found
    raise Unavailable(
        f"no Python {version} on PATH, in pyenv, uv or py; install it: "
        f"'uv python install {version}' or 'pyenv install {version}'"
    )


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    minor = ".".join(version.split(".")[:2])
    for name in (f"python{minor}", "python3", "python"):
        yield from (str(Path(folder, name)) for folder in os.get_exec_path())
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    named = sorted((root / "versions").glob(f"{version}*/bin/python"), key=_numbers, reverse=True)
    yield from map(str, named)
    yield from _told(["uv", "python", "find", "--no-python-downloads", version])
    yield from _told(["py", f"-{minor}", "-c", "import sys; print(sys.executable)"])


def _numbers(path: Path) -> list[int]:
    return [int(part) for part in path.parts[-3].split(".") if part.isdecimal()]


def _told(command: list[str]) -> Iterator[str]:
    """Yield the path that another tool prints, where there is that tool."""
    if shutil.which(command[0]):
        status, said = _ask(command)
        if status.endswith("status 0") and said.strip():
            yield said.strip().splitlines()[-1]
