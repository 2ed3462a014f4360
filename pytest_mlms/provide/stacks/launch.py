"""One Stack to a Launch: the command, environment and cores that an agent is started with."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_mlms.core.errors import StackError, Unavailable
from pytest_mlms.core.files import replacing
from pytest_mlms.core.records import Launch, Library, Stack
from pytest_mlms.core.text import redact_all
from pytest_mlms.provide.stacks.variables import agent_variables, chosen_by_caller, passed_through

if TYPE_CHECKING:
    from pytest_mlms.provide.stacks.installers import Show
    from pytest_mlms.provide.stacks.interpreters import Interpreter

__all__ = [
    "THREAD_VARIABLES",
    "base_interpreter",
    "caller_variables",
    "check_host",
    "clean_environment",
    "is_made",
    "prepare",
    "without_threads",
]

# No user site-packages; an agent leaves no bytecode in the packages that it imports.
_FLAGS = ("-s", "-B")

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "TVM_NUM_THREADS",
)
"""Variables that libraries read when they are loaded, before a framework can be asked."""

_REMOVED = re.compile(
    r"""PYTHON.* | VIRTUAL_ENV | __PYVENV_LAUNCHER__
    | (.*_)? N?THREADS? (_NUM|_LIMIT|_COUNT)? | NPROC
    | (OMP|MKL|KMP)_DYNAMIC(_MODE)? | \w+_NUM_TEAMS | KMP_HW_SUBSET | BLIS_[IJ][CR]_NT""",
    re.VERBOSE,
)
"""Variables of pytest's own Python, and those that set how many threads there are."""


class _Program(NamedTuple):
    """The Python that runs a stack's agents, or a program that is its agent.

    ``folder`` is that of its installation, ``lock`` has the exact packages of an environment that
    was made for the stack, or a line for each file of the agent's command.
    """

    folder: Path
    command: Path
    lock: tuple[str, ...] = ()


def prepare(
    stack: Stack,
    cache: Path,
    *,
    threads: int | None = None,
    mounts: Iterable[Path] = (),
    gpu: str = "",
    show: Show = lambda step: None,
) -> Launch:
    """Return how to start an agent of ``stack``; its environment is made in ``cache`` if needed.

    ``threads`` is the number that the load request will ask for. ``mounts`` are the files and
    folders that the agent will read, ``gpu`` is the UUID of the GPU that it will use; a container
    sees no others. ``show`` is called with each step of an installation. Raises Unavailable for
    what this machine doesn't have, StackError for what can't be had as it is declared.
    """
    _check_cores(stack)
    count = threads or stack.threads
    own = dict.fromkeys(THREAD_VARIABLES, str(count)) if count else {}
    own.update(stack.env)
    if stack.container:
        from pytest_mlms.provide.stacks.containers import Visible, launch_in_container

        return launch_in_container(stack, own, Visible(mounts, gpu), show)
    program = _program_of(stack, cache, show)
    for name, value in own.items():
        own[name] = value.replace("{stack}", str(program.folder))
    environment = clean_environment(os.environ, own, stack.env_passthrough)
    inherited = chosen_by_caller(environment, own, stack.env_passthrough)
    if stack.libraries:
        folder = _library_folder(stack, cache)
        _prepend(environment, "LD_LIBRARY_PATH", folder)
    if stack.requirements:
        environment.setdefault("PATH", os.defpath)
        _prepend(environment, "PATH", program.folder / "bin")
    return Launch(
        command=(str(program.command), *(stack.agent[1:] if stack.agent else _FLAGS)),
        env=environment,
        cores=stack.cores,
        lock=program.lock,
        inherited=inherited,
        is_agent=bool(stack.agent),
    )


def without_threads(launch: Launch, stack: Stack) -> Launch:
    """Return the launch without the numbers of threads that ``prepare`` set for a stack."""
    own = dict(stack.env)
    kept = {
        name: value
        for name, value in launch.env.items()
        if name not in THREAD_VARIABLES or name in own
    }
    return replace(launch, env=kept)


def base_interpreter(stack: Stack) -> Interpreter:
    """Return the interpreter that a stack is, or that its environment is made with.

    Raises StackError, which names the stack's line, where its path leads to no interpreter, and
    Unavailable where this machine hasn't got it.
    """
    from pytest_mlms.provide.stacks.interpreters import find_interpreter, probe

    if stack.python:
        return find_interpreter(stack.python)
    if stack.interpreter is None or stack.interpreter == "current":
        return probe(sys.executable)
    try:
        return probe(stack.interpreter)
    except StackError as error:
        place = f"{stack.place}: " if stack.place else ""
        raise StackError(f"{place}stack {stack.name}: {error}") from None


def clean_environment(
    base: Mapping[str, str], own: Mapping[str, str], passthrough: Iterable[str] = ()
) -> dict[str, str]:
    """Return the environment of an agent: what it may have of ``base``, and ``own``.

    ``passthrough`` are patterns of what it may have, too. Nothing lets variables through that
    change what an agent imports or how many threads it uses, but ``own``.
    """
    environment = {}
    for name, value in agent_variables(base, passthrough).items():
        if not _REMOVED.fullmatch(name):
            environment[name] = value
    environment["PYTHONNOUSERSITE"] = "1"
    environment.update(own)
    return environment


def caller_variables(declared: Mapping[str, Any], more: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables by which this process would change what a declared stack measures.

    They are as results keep them, without secrets. ``more`` are patterns of --mlms-env-passthrough.
    A container gets what is passed on alone.
    """
    own = declared.get("env") or {}
    patterns = (*(declared.get("env_passthrough") or ()), *more)
    found = passed_through(os.environ, patterns)
    if not declared.get("container"):
        found = clean_environment(os.environ, {}, patterns)
    variables: dict[str, str] = redact_all(chosen_by_caller(found, own, patterns))
    return variables


def check_host(stack: Stack) -> None:
    """Raise Unavailable where this machine lacks a stack's Python, agent, engine or cores.

    Nothing is made or fetched.
    """
    _check_cores(stack)
    if stack.container:
        from pytest_mlms.provide.stacks.containers import engine_for

        engine_for(stack)
    elif stack.agent:
        from pytest_mlms.provide.stacks.programs import find_program

        with _naming(stack):
            find_program(stack)
    elif stack.requirements or stack.interpreter != "current":
        with _naming(stack):
            base_interpreter(stack)


def is_made(stack: Stack, cache: Path) -> bool:
    """Return whether nothing has to be installed or pulled before an agent of a stack starts.

    Raises as ``prepare`` does.
    """
    if stack.container:
        from pytest_mlms.provide.stacks.containers import has_image

        return has_image(stack)
    if not stack.requirements:
        return True
    from pytest_mlms.provide.stacks.environments import existing

    with _naming(stack):
        return existing(stack, base_interpreter(stack), cache) is not None


def _program_of(stack: Stack, cache: Path, show: Show) -> _Program:
    with _naming(stack):
        if stack.agent:
            from pytest_mlms.provide.stacks.programs import find_program, program_lines

            path = find_program(stack)
            return _Program(path.parent, path, program_lines(stack))
        if stack.requirements:
            from pytest_mlms.provide.stacks.environments import provide

            made = provide(stack, base_interpreter(stack), cache, show)
            return _Program(made.folder, made.interpreter, made.lock)
        if stack.interpreter == "current":
            return _Program(Path(sys.prefix), Path(sys.executable))
        found = base_interpreter(stack)
        return _Program(found.prefix, found.path)


@contextlib.contextmanager
def _naming(stack: Stack) -> Iterator[None]:
    """Put the name of the stack in front of the reason why it is unavailable."""
    try:
        yield
    except Unavailable as error:
        raise Unavailable(f"stack {stack.name}: {error}") from None


def _prepend(environment: dict[str, str], name: str, folder: Path) -> None:
    """Put a folder first in a variable such as PATH."""
    paths = [str(folder)]
    if environment.get(name):
        paths.append(environment[name])
    environment[name] = os.pathsep.join(paths)


def _check_cores(stack: Stack) -> None:
    if not stack.cores:
        return
    if not hasattr(os, "sched_getaffinity"):
        raise Unavailable(f"stack {stack.name} is held to cores, which this system can't")
    available = os.sched_getaffinity(0)
    if not available.issuperset(stack.cores):
        wanted = ", ".join(map(str, stack.cores))
        found = ", ".join(map(str, sorted(available)))
        raise Unavailable(f"stack {stack.name} is for cores {wanted}; there are {found}")


def _library_folder(stack: Stack, cache: Path) -> Path:
    """Return a folder with a link for each of the stack's libraries.

    Raises Unavailable, which names the package to install, where the system has no such library.
    """
    links = [(library.name, _find_library(stack, library)) for library in stack.libraries]
    digest = hashlib.sha256(repr(links).encode()).hexdigest()
    folder = cache / "libraries" / digest[:20]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, target in links:
            with replacing(folder / name) as temporary:
                temporary.symlink_to(target)
    except OSError as error:
        problem = f"{error.strerror} ({folder})"
        raise StackError(f"stack {stack.name}: {problem}; make room or grant access") from error
    return folder


def _find_library(stack: Stack, wanted: Library) -> str:
    name = re.escape(wanted.library)
    found = re.search(rf"^\s*{name} .*=> (\S+)$", _system_libraries(), re.MULTILINE)
    if found is None:
        advice = f"apt-get install {wanted.package}"
        raise Unavailable(f"stack {stack.name} needs {wanted.library}; {advice}")
    return found[1]


@lru_cache(maxsize=1)
def _system_libraries() -> str:
    """Return the loader's list of libraries, a line each."""
    program = shutil.which("ldconfig")
    if program is None:  # it is in /sbin, which not every user has on PATH
        program = shutil.which("ldconfig", path="/sbin:/usr/sbin")
    if program is None:
        return ""
    environment = dict(os.environ, LC_ALL="C")
    done = subprocess.run(
        [program, "-p"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return done.stdout
