"""How an agent of a stack is started.

Its interpreter, its environment, cleaned of what would leak into it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from pytest_mlms.errors import StackError, Unavailable
from pytest_mlms.records import Launch, Library, Stack
from pytest_mlms.stacks.containers import in_container
from pytest_mlms.stacks.environments import provide
from pytest_mlms.stacks.installers import Show
from pytest_mlms.stacks.interpreters import Interpreter, find_interpreter, probe

__all__ = ["base_interpreter", "clean_environment", "prepare"]

_FLAGS = ("-s", "-B")  # no user site; an agent leaves no bytecode in the packages that it imports
_THREADS = (
    *(
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    *("VECLIB_MAXIMUM_THREADS", "TVM_NUM_THREADS"),
)
_LEAKS = {*_THREADS, "OMP_THREAD_LIMIT", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}


def prepare(
    stack: Stack,
    cache: Path,
    *,
    threads: int | None = None,
    mounts: Iterable[Path] = (),
    show: Show = lambda text: None,
) -> Launch:
    """Return how to start an agent of ``stack``, making its environment below ``cache`` where it
    isn't there yet.

    ``threads`` is what the agent's load will ask for, ``mounts`` are the files and folders that it
    will read, which a container is shown; ``show`` is told what an installer does. Raises
    Unavailable for what this machine lacks, StackError for what can't be had as it is declared.
    """
    _check_cores(stack)
    own = {**_threads_of(threads or stack.threads), **dict(stack.env)}
    if stack.container:
        return in_container(stack, own, mounts, show)
    folder, command, lock = _interpreter(stack, cache, show)
    own = {name: value.replace("{stack}", str(folder)) for name, value in own.items()}
    environment = clean_environment(os.environ, own)
    if stack.libraries:
        extra = [str(_linked(stack, cache)), *filter(None, [environment.get("LD_LIBRARY_PATH")])]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(extra)
    if stack.requirements:
        environment["PATH"] = os.pathsep.join(
            [str(folder / "bin"), environment.get("PATH", os.defpath)]
        )
    return Launch((command, *_FLAGS), environment, stack.cores, lock)


def _interpreter(stack: Stack, cache: Path, show: Show) -> tuple[Path, str, tuple[str, ...]]:
    """Return the stack's folder, its interpreter, and the exact packages of an environment that we
    made.
    """
    try:
        if stack.requirements:
            made = provide(stack, base_interpreter(stack), cache, show)
            return made.folder, str(made.interpreter), made.lock
        if stack.interpreter == "current":
            return Path(sys.prefix), sys.executable, ()
        found = base_interpreter(stack)
        return found.prefix, str(found.path), ()
    except Unavailable as error:
        raise Unavailable(f"stack {stack.name}: {error}") from None


def base_interpreter(stack: Stack) -> Interpreter:
    """Return the interpreter that a stack is, or that its environment is made with."""
    if stack.python:
        return find_interpreter(stack.python)
    return probe(sys.executable if stack.interpreter in (None, "current") else stack.interpreter)


def clean_environment(base: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return ``base`` without what would change what an agent imports or how many threads it uses,
    and with ``own``.
    """
    kept = {
        name: value
        for name, value in base.items()
        if not name.startswith("PYTHON") and name not in _LEAKS
    }
    return {**kept, "PYTHONNOUSERSITE": "1", **own}


def _threads_of(count: int | None) -> dict[str, str]:
    """Return what libraries read when they are loaded, before a framework can be told."""
    return dict.fromkeys(_THREADS, str(count)) if count else {}


def _check_cores(stack: Stack) -> None:
    if not stack.cores:
        return
    if not hasattr(os, "sched_getaffinity"):
        raise Unavailable(f"stack {stack.name} is held to cores, which this system can't")
    lacking = set(stack.cores) - set(os.sched_getaffinity(0))
    if lacking:
        has = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        raise Unavailable(
            f"stack {stack.name} is for cores {', '.join(map(str, stack.cores))}; there are {has}"
        )


def _linked(stack: Stack, cache: Path) -> Path:
    """Return a folder with a link for each of the stack's libraries.

    Raises Unavailable, which names the package.
    """
    found = [(wanted.name, _find_library(stack, wanted)) for wanted in stack.libraries]
    folder = cache / "libraries" / hashlib.sha256(repr(found).encode()).hexdigest()[:20]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, path in found:
            temporary = folder / f".{name}-{os.getpid()}"
            temporary.symlink_to(path)
            os.replace(temporary, folder / name)
    except OSError as error:
        raise StackError(
            f"stack {stack.name}: {error.strerror} ({folder}); make room or grant access"
        ) from error
    return folder


def _find_library(stack: Stack, wanted: Library) -> str:
    found = re.search(rf"^\s*{re.escape(wanted.library)} .*=> (\S+)$", _libraries(), re.MULTILINE)
    if not found:
        raise Unavailable(
            f"stack {stack.name} needs {wanted.library}; apt-get install {wanted.package}"
        )
    return found[1]


@lru_cache(maxsize=1)
def _libraries() -> str:
    """Return what the loader knows; ldconfig is in /sbin, which not every user has on PATH."""
    program = shutil.which("ldconfig") or shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if program is None:
        return ""
    done = subprocess.run(
        [program, "-p"],
        capture_output=True,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    return done.stdout
