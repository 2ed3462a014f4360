"""Agents that are programs of people's own: where they are, and what tells their content apart."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from pytest_mlms.core.errors import StackError, Unavailable
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.stacks.installer_settings import digest_of_file

_PROGRAM = "program "
_DIGEST = " @ sha256="


def find_program(stack: Stack) -> Path:
    """Return the program that is a stack's agent.

    Raises StackError, which names the stack's line, where its path leads to none, and Unavailable
    where there is none of this name on PATH.
    """
    name = stack.agent[0]
    if "/" not in name:
        found = shutil.which(name)
        if found is None:
            raise Unavailable(f"its agent, {name}, is not on PATH; install it, or name its path")
        return Path(found)
    where = f"{stack.place}: stack {stack.name}: " if stack.place else ""
    if not os.path.isfile(name):
        raise StackError(f"{where}there is no program {name}; build it, or correct the path")
    if not os.access(name, os.X_OK):
        problem = f"{where}{name} can't be executed"
        raise StackError(f"{problem}; chmod +x it, or write what runs it before it")
    return Path(name)


def program_lines(stack: Stack) -> tuple[str, ...]:
    """Return a line for each file in the command of a stack's agent, with its digest.

    Raises as ``find_program`` does.
    """
    files = [find_program(stack)]
    files += [path for path in map(Path, stack.agent[1:]) if path.is_absolute() and path.is_file()]
    return tuple(f"{_PROGRAM}{path.name}{_DIGEST}{digest_of_file(path)}" for path in files)


def programs_of(packages: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of an agent's files among those of exact packages."""
    return tuple(line for line in packages if line.startswith(_PROGRAM) and _DIGEST in line)
