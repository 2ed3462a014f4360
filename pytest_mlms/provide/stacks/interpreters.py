"""Finding Python interpreters by version, and asking them for their facts."""

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

from pytest_mlms.core.errors import StackError, Unavailable
from pytest_mlms.provide.stacks.variables import installer_variables

# python-discovery isn't used here: of pyenv's interpreters it finds only the active one, it
# resolves a virtual environment to its base, and it doesn't tell what a wrong program answered.

_OLDEST = (3, 6)
_SECONDS = 60  # for an interpreter to answer
_QUESTION = """
import sys
sys.path[:] = [path for path in sys.path if path]  # Python 2 has no -I
import json, platform, sys, sysconfig
facts = [platform.python_version(), platform.python_implementation()]
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    facts[1] += ", free-threaded"
abi = [sysconfig.get_config_var("SOABI") or ""] + list(platform.libc_ver())
print(json.dumps(facts + [sysconfig.get_platform(), sys.prefix, " ".join(abi).strip()]))
"""


class Interpreter(NamedTuple):
    """A Python interpreter that answered.

    ``version`` is such as 3.11.7, ``implementation`` such as CPython, ``platform`` such as
    linux-x86_64, ``prefix`` the folder of its installation, and ``abi`` what compiled packages are
    made for, such as cpython-311-x86_64-linux-gnu with the C library.
    """

    path: Path
    version: str
    implementation: str
    platform: str
    prefix: Path
    abi: str = ""

    @property
    def release(self) -> tuple[int, ...]:
        """The major and the minor version."""
        numbers = self.version.partition("+")[0].split(".")
        return tuple(int(number) for number in numbers[:2])


class _Answer(NamedTuple):
    """The end of a command, in words, and its output."""

    ending: str
    output: str

    @property
    def last_line(self) -> str:
        lines = self.output.strip().splitlines()
        if not lines:
            return ""
        return lines[-1]


def probe(path: str | Path) -> Interpreter:
    """Return the facts of the interpreter at ``path``, or of this name on PATH.

    Raises Unavailable where a name isn't on PATH, StackError where a path leads to none, or what is
    found is something else or too old.
    """
    found = shutil.which(str(path))
    if found is None and Path(path).name == str(path):
        raise Unavailable(f"the interpreter {path} isn't on PATH; install it, or name another")
    if found is None:
        reason = "is no program that may be run" if Path(path).exists() else "isn't there"
        raise StackError(f"the interpreter {path} {reason}; correct its path")
    modified = os.stat(found).st_mtime_ns
    return _probe(found, modified)


@lru_cache(maxsize=256)
def _probe(path: str, modified: int) -> Interpreter:
    """Probe an executable; ``modified`` makes the cache forget a version that was replaced."""
    answer = _ask([path, "-E", "-s", "-B", "-c", _QUESTION])
    try:
        version, implementation, platform, prefix, *abi = json.loads(answer.output)
    except (ValueError, TypeError):
        problem = f"asked for its version, it {answer.ending}"
        if answer.last_line:
            problem += f" and said {answer.last_line!r}"
        raise StackError(f"{path} is not a Python interpreter: {problem}") from None
    interpreter = Interpreter(Path(path), version, implementation, platform, Path(prefix), *abi)
    if interpreter.release < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise StackError(f"{path} is Python {version}; agents need {oldest} or later")
    return interpreter


def _ask(command: Sequence[str]) -> _Answer:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=installer_variables(os.environ),  # it may run .pth files of other people
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _Answer(f"gave no answer in {_SECONDS} s", "")
    except OSError as error:
        return _Answer(f"can't be run ({error.strerror})", "")
    output = done.stdout or done.stderr
    return _Answer(f"ended with status {done.returncode}", output)


@lru_cache(maxsize=64)
def find_interpreter(version: str) -> Interpreter:
    """Return a CPython of ``version``, such as 3.11 or 3.11.7.

    The search order is: the interpreter that runs this, PATH, pyenv, uv, and the launcher ``py``.
    Raises Unavailable, which says what to install.
    """
    for path in _candidates(version):
        try:
            found = probe(path)
        except (StackError, Unavailable):
            continue  # such as pyenv's shim on PATH of a version that is not active
        is_asked_for = f"{found.version}.".startswith(f"{version}.")  # to as many places
        if found.implementation == "CPython" and is_asked_for:
            return found
    raise Unavailable(
        f"no Python {version} on PATH, in pyenv, uv or py; install it: "
        f"'uv python install {version}' or 'pyenv install {version}'"
    )


def _candidates(version: str) -> Iterator[str]:
    parts = version.split(".")
    minor = ".".join(parts[:2])
    yield sys.executable
    for name in (f"python{minor}", "python3", "python"):
        for folder in os.get_exec_path():
            yield os.path.join(folder, name)
    yield from _of_pyenv(version)
    yield from _path_from(["uv", "python", "find", "--no-python-downloads", version])
    yield from _path_from(["py", f"-{minor}", "-I", "-c", "import sys; print(sys.executable)"])


def _of_pyenv(version: str) -> Iterator[str]:
    """Yield pyenv's interpreters of a version, active or not, the newest first."""

    def numbers(folder: Path) -> list[int]:
        return [int(part) for part in folder.name.split(".") if part.isdecimal()]

    root = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    folders = Path(root, "versions").glob(f"{version}*")
    for folder in sorted(folders, key=numbers, reverse=True):
        yield str(folder / "bin" / "python")


def _path_from(command: list[str]) -> Iterator[str]:
    """Yield the path that another tool prints, if that tool is installed."""
    if shutil.which(command[0]) is None:
        return
    answer = _ask(command)
    if answer.last_line and answer.ending.endswith("status 0"):
        yield answer.last_line
