"""``mlms stack``: what stacks there are, and their environments made, shown, locked and removed."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pytest_mlms.agent.registry import find_predictors
from pytest_mlms.artifacts.fetch import default_cache
from pytest_mlms.errors import MlmsError, StackError
from pytest_mlms.records import Stack
from pytest_mlms.report.table import format_table
from pytest_mlms.stacks.declared import HERE, choose, declared_stacks
from pytest_mlms.stacks.environments import (
    Environment,
    clear_strays,
    environments,
    existing,
    provide,
    remove,
)
from pytest_mlms.stacks.launch import base_interpreter, prepare
from pytest_mlms.units import format_quantity

__all__ = ["add_stack_commands"]

T = TypeVar("T")

_ELSEWHERE = "--mlms-manifests DIR says where else"


def add_stack_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``stack`` and what can be done with one."""
    group = commands.add_parser("stack", help="list, create, show, lock or remove software stacks")
    actions = group.add_subparsers(required=True, metavar="ACTION")
    for name, (run, what) in _ACTIONS.items():
        action = actions.add_parser(name, help=what)
        if name != "list":
            action.add_argument(
                "stacks", nargs="+", metavar="STACK", help="a name, a requirement, or 'all'"
            )
        action.add_argument(
            "--mlms-manifests",
            action="append",
            default=[],
            type=Path,
            metavar="DIR",
            dest="manifests",
        )
        action.add_argument(
            "--mlms-predictors",
            action="append",
            default=[],
            type=Path,
            metavar="DIR",
            dest="folders",
        )
        action.add_argument(
            "--mlms-cache", type=Path, metavar="DIR", dest="cache", default=default_cache()
        )
        action.set_defaults(run=run)


def _declared(options: argparse.Namespace) -> dict[str, Stack]:
    return declared_stacks(Path.cwd(), [path.absolute() for path in options.manifests])


def _chosen(options: argparse.Namespace, words: Sequence[str]) -> list[Stack]:
    """Return the stacks that the words mean.

    A bare name that isn't declared is told, as it may be meant for one.
    """
    declared = _declared(options)
    stacks = choose(words, declared, find_predictors(options.folders), "stack")
    for stack in stacks:
        if stack.name not in declared and re.fullmatch(r"[\w.-]+", stack.name):
            meant = f"so it is any version of {stack.requirements[0]}; {_ELSEWHERE}"
            print(
                f"mlms: {stack.name} is not declared in {_looked(options)}, {meant}",
                file=sys.stderr,
            )
    return stacks


def _looked(options: argparse.Namespace) -> str:
    """Return where declarations were looked for."""
    return ", ".join(map(str, [Path.cwd(), *options.manifests]))


def _list(options: argparse.Namespace) -> int:
    declared = _declared(options)
    rows, seen = [], set()
    for stack in declared.values():
        made = _made(stack, options.cache)
        seen.add(made and made.folder)
        rows.append([stack.name, stack.framework or "any", _what(stack), _state(stack, made)])
    for made in environments(options.cache):
        if made.folder not in seen:
            rows.append([made.stack, "", ", ".join(made.requirements), _state(None, made)])
    header, *lines = format_table(["stack", "framework", "what", "state"], rows, 120, left=4)
    for line in (*header, *(line for folded in lines for line in folded)):
        print(line.rstrip())
    if len(declared) == 1:
        print(
            f"mlms: no stacks.yaml declares any in {_looked(options)}; {_ELSEWHERE}",
            file=sys.stderr,
        )
    return 0


def _create(options: argparse.Namespace) -> int:
    def create(stack: Stack) -> None:
        launch = prepare(stack, options.cache, show=_step(stack))
        print(f"{stack.name}: {launch.command[0]}")

    return _each(_chosen(options, options.stacks), create)


def _show(options: argparse.Namespace) -> int:
    def show(stack: Stack) -> None:
        made = _made(stack, options.cache)
        facts = {
            "stack": stack.name,
            "declared": "needs none"
            if stack is HERE
            else str(stack.place or f"not in {_looked(options)}"),
            "framework": stack.framework or "any",
            "what": _what(stack),
            "state": _state(stack, made),
            "folder": str(made.folder) if made else "",
            "threads": str(stack.threads or ""),
            "cores": ", ".join(map(str, stack.cores)),
            "environment": " ".join(f"{name}={value}" for name, value in stack.env),
        }
        print("\n".join(f"{name:12} {value}" for name, value in facts.items() if value))
        print("".join(f"  {package}\n" for package in (made.lock if made else ())), end="")

    return _each(_chosen(options, options.stacks), show)


def _lock(options: argparse.Namespace) -> int:
    def lock(stack: Stack) -> None:
        if not stack.requirements:
            raise StackError(f"stack {stack.name} has no requirements; only those can be locked")
        interpreter = base_interpreter(stack)
        made = provide(replace(stack, lock=None), interpreter, options.cache, _step(stack))
        head = (
            f"# {stack.name}: Python {made.python}, {made.platform}; written by mlms stack lock\n"
        )
        text = head + "".join(f"{package}\n" for package in made.lock)
        if stack.lock is None:
            print(text, end="")
            return
        temporary = stack.lock.with_name(f".{stack.lock.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, stack.lock)
        print(f"{stack.name}: {len(made.lock)} packages in {stack.lock}")

    return _each(_chosen(options, options.stacks), lock)


def _remove(options: argparse.Namespace) -> int:
    if "all" in options.stacks:
        clear_strays(options.cache)
    there = list(environments(options.cache))
    wanted: dict[Path, Environment] = {}
    for word in options.stacks:
        found = [made for made in there if word in ("all", made.stack)]
        if not found and word != "all":
            found = [
                made for stack in _chosen(options, [word]) if (made := _made(stack, options.cache))
            ]
        wanted.update((made.folder, made) for made in found)
        if not found:
            what = "there is no environment" if word == "all" else f"{word} has no environment"
            print(f"mlms: {what} in {options.cache}", file=sys.stderr)

    def clear(made: Environment) -> None:
        size = _size(made.folder)
        remove(made)
        print(f"{made.stack}: {made.folder} removed, {format_quantity(size, 'B')}")

    return _each(wanted.values(), clear)


_ACTIONS: dict[str, tuple[Callable[[argparse.Namespace], int], str]] = {
    "list": (_list, "list the declared stacks, and the environments that there are"),
    "create": (_create, "make the environments of stacks, or check that they can be started"),
    "show": (_show, "show what a stack is, and the exact packages of its environment"),
    "lock": (
        _lock,
        "write the exact packages of a stack's environment to its lock file, or print them",
    ),
    "remove": (_remove, "remove the environments of stacks that nobody uses"),
}


def _each(things: Iterable[T], do: Callable[[T], None]) -> int:
    """Do it for each; print what goes wrong and go on; return 1 where something did."""
    status = 0
    for thing in things:
        try:
            do(thing)
        except (MlmsError, OSError) as error:
            print(f"mlms: {error}", file=sys.stderr)
            status = 1
    return status


def _step(stack: Stack) -> Callable[[str], None]:
    def show(text: str) -> None:
        if text:
            print(f"{stack.name}: {text}", file=sys.stderr)

    return show


def _made(stack: Stack, cache: Path) -> Environment | None:
    """Return the stack's environment, if it is there."""
    try:
        return existing(stack, base_interpreter(stack), cache) if stack.requirements else None
    except MlmsError:
        return None


def _what(stack: Stack) -> str:
    if stack.container:
        return f"container {stack.container}"
    return ", ".join(stack.requirements) or f"interpreter {stack.interpreter}"


def _state(stack: Stack | None, made: Environment | None) -> str:
    if made:
        return f"made, Python {made.python}, {format_quantity(_size(made.folder), 'B')}"
    if stack is None or stack.container:
        return ""
    try:
        python = base_interpreter(stack)
    except MlmsError as error:
        return str(error).partition(";")[0]
    return (
        f"not made, Python {python.version}" if stack.requirements else f"Python {python.version}"
    )


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))
