"""``mlms stack``: list, create, show, lock and remove software stacks."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pytest_mlms.cli.arguments import (
    add_cache,
    add_folders,
    add_predictors,
    check_output,
    output_width,
    positive,
    print_error,
)
from pytest_mlms.core.errors import MlmsError, StackError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.records import Stack
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.project import project_stacks
from pytest_mlms.provide.stacks.declared import HERE, DeclaredStacks, choose
from pytest_mlms.provide.stacks.environments import (
    Environment,
    clear_strays,
    environments,
    existing,
    last_use,
    provide,
    remove,
)
from pytest_mlms.provide.stacks.launch import base_interpreter, prepare
from pytest_mlms.provide.stacks.programs import find_program
from pytest_mlms.show.report.table import format_table

_ELSEWHERE = "--mlms-manifests DIR says where else"
_HEADER = ("stack", "framework", "state", "what")
_INDENT = "  "
_DAY = 24 * 3600  # seconds

_Thing = TypeVar("_Thing")


class _Action(NamedTuple):
    """A subcommand with its help."""

    run: Callable[[argparse.Namespace], int]
    help: str


def add_stack_commands(commands: Any) -> None:
    """Add the command with its actions."""
    group = commands.add_parser("stack", help="list, create, show, lock or remove software stacks")
    actions = group.add_subparsers(required=True, metavar="ACTION")
    for name, action in _ACTIONS.items():
        parser = actions.add_parser(name, help=action.help)
        if name != "list":
            parser.add_argument(
                "stacks",
                nargs="*" if name == "remove" else "+",
                metavar="STACK",
                help="a name, a requirement, or 'all'",
            )
        if name == "remove":
            parser.add_argument(
                "--unused",
                type=positive,
                metavar="DAYS",
                help="only what nobody has used for so many days; of all stacks, if none is named",
            )
        add_folders(parser, "manifests", "folder with a stacks.yaml; may be repeated")
        add_predictors(parser)
        add_cache(parser)
        parser.set_defaults(run=action.run)


def _list(options: argparse.Namespace) -> int:
    declared = _declared(options)
    rows = []
    listed = set()
    for stack in declared.values():
        made = _made(stack, options.cache)
        if made:
            listed.add(made.folder)
        framework = stack.framework or "any"
        rows.append([stack.name, framework, _state(stack, made), _content(stack)])
    for made in environments(options.cache):
        if made.folder not in listed:
            requirements = ", ".join(made.requirements)
            rows.append([made.stack, "", _made_state(made), requirements])
    for line in _table(rows, output_width()):
        print(line)
    if list(declared) == [HERE.name]:
        print_error(f"no stacks.yaml declares any in {_searched(options)}; {_ELSEWHERE}")
    return 0


def _table(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of the list; the content of a stack is below its name if need be."""
    table = format_table(_HEADER, rows, width, left=len(_HEADER))
    if all(len(lines) == 1 for lines in table):
        for (line,) in table:
            yield line
        return
    *names, last = zip(_HEADER, *rows, strict=True)
    header, *others = zip(*names, strict=True)
    table = format_table(header, others, width, left=len(names))
    for lines, content in zip(table, last, strict=True):
        yield from lines
        yield from textwrap.wrap(
            content,
            width,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_on_hyphens=False,
        )


def _create(options: argparse.Namespace) -> int:
    def create(stack: Stack) -> None:
        launch = prepare(stack, options.cache, show=_printer(stack))
        print(f"{stack.name}: {launch.command[0]}")

    return _for_each(_chosen(options), create)


def _show(options: argparse.Namespace) -> int:
    def show(stack: Stack) -> None:
        made = _made(stack, options.cache)
        for name, value in _facts(stack, made, options).items():
            if value:
                print(f"{name:12} {value}")
        if made:
            for package in made.lock:
                print(f"  {package}")

    return _for_each(_chosen(options), show)


def _facts(stack: Stack, made: Environment | None, options: argparse.Namespace) -> dict[str, str]:
    """Return the facts of a stack by their titles, "" for one that it lacks."""
    if stack is HERE:
        declared = "needs none"
    elif stack.place is None:
        declared = f"not in {_searched(options)}"
    else:
        declared = str(stack.place)
    cores = map(str, stack.cores)
    variables = [f"{name}={value}" for name, value in stack.env]
    return {
        "stack": stack.name,
        "declared": declared,
        "framework": stack.framework or "any",
        "what": _content(stack),
        "state": _state(stack, made),
        "folder": str(made.folder) if made else "",
        "threads": str(stack.threads or ""),
        "cores": ", ".join(cores),
        "environment": " ".join(variables),
        "passes on": " ".join(stack.env_passthrough),
    }


def _lock(options: argparse.Namespace) -> int:
    def lock(stack: Stack) -> None:
        if not stack.requirements:
            raise StackError(f"stack {stack.name} has no requirements; only those can be locked")
        if stack.lock is not None:
            check_output(stack.lock, f"stack {stack.name}")
        unlocked = replace(stack, lock=None)
        interpreter = base_interpreter(stack)
        made = provide(unlocked, interpreter, options.cache, _printer(stack))
        origin = f"Python {made.python}, {made.platform}; written by mlms stack lock"
        text = "\n".join([f"# {stack.name}: {origin}", *made.lock, ""])
        if stack.lock is None:
            print(text, end="")
            return
        write_atomically(stack.lock, text)
        print(f"{stack.name}: {len(made.lock)} packages in {stack.lock}")

    return _for_each(_chosen(options), lock)


def _remove(options: argparse.Namespace) -> int:
    used = []

    def remove_one(made: Environment) -> None:
        if options.unused and last_use(made) > time.time() - options.unused * _DAY:
            used.append(made)
            return
        size = _shown_size(made.folder)
        remove(made)
        print(f"{made.stack}: {made.folder} removed, {size}")

    if not options.stacks:
        if options.unused is None:
            raise MlmsError("name a stack to remove, 'all', or --unused DAYS")
        options.stacks = ["all"]
    if "all" in options.stacks:
        clear_strays(options.cache)
    found = _to_remove(options)
    status = _for_each(found, remove_one)
    if used and len(used) == len(found):
        print_error(f"each was used in the last {options.unused} days")
    return status


def _to_remove(options: argparse.Namespace) -> list[Environment]:
    """Return the environments that the arguments name, each once.

    A note is printed for each argument that names none.
    """
    found: dict[Path, Environment] = {}
    for name in options.stacks:
        named = _environments_named(name, options)
        for made in named:
            found[made.folder] = made
        if not named:
            problem = "there is no environment" if name == "all" else f"{name} has no environment"
            print_error(f"{problem} in {options.cache}")
    return list(found.values())


def _environments_named(name: str, options: argparse.Namespace) -> list[Environment]:
    """Return the environments of a stack's name, or of a requirement."""
    existing_ones = list(environments(options.cache))
    if name == "all":
        return existing_ones
    named = [made for made in existing_ones if made.stack == name]
    if named:
        return named
    found = [_made(stack, options.cache) for stack in _resolved([name], options)]
    return [made for made in found if made]


_ACTIONS = {
    "list": _Action(_list, "list the declared stacks, and the environments that have been made"),
    "create": _Action(
        _create, "make the environments of stacks, or check that they can be started"
    ),
    "show": _Action(_show, "show what a stack is, and the exact packages of its environment"),
    "lock": _Action(
        _lock,
        "write the exact packages of a stack's environment to its lock file, or print them",
    ),
    "remove": _Action(_remove, "remove the environments of stacks that no process uses"),
}


def _declared(options: argparse.Namespace) -> DeclaredStacks:
    return project_stacks(manifests=options.manifests)


def _searched(options: argparse.Namespace) -> str:
    """Return the folders where declarations are searched for."""
    return ", ".join(map(str, _declared(options).folders))


def _chosen(options: argparse.Namespace) -> list[Stack]:
    return _resolved(options.stacks, options)


def _resolved(names: list[str], options: argparse.Namespace) -> list[Stack]:
    """Return the stacks that some names mean.

    A note is printed for each bare name that isn't declared: it is a requirement, and may have been
    meant for a stack.
    """
    declared = _declared(options)
    stacks = choose(names, declared, find_predictors(options.predictors), "stack")
    for stack in stacks:
        if stack.name not in declared and re.fullmatch(r"[\w.-]+", stack.name):
            problem = f"{stack.name} is not declared in {_searched(options)}"
            meaning = f"so it is any version of {stack.requirements[0]}"
            print_error(f"{problem}, {meaning}; {_ELSEWHERE}")
    return stacks


def _for_each(things: Iterable[_Thing], action: Callable[[_Thing], None]) -> int:
    """Do an action for each thing, and print the errors; return 1 where there are any."""
    status = 0
    for thing in things:
        try:
            action(thing)
        except (MlmsError, OSError) as error:
            print_error(error)
            status = 1
    return status


def _printer(stack: Stack) -> Callable[[str], None]:
    """Return a function that prints a step of a stack's installation."""

    def show(step: str) -> None:
        if step:
            print(f"{stack.name}: {step}", file=sys.stderr)

    return show


def _made(stack: Stack, cache: Path) -> Environment | None:
    """Return the stack's environment, None if it has not been made or can't be."""
    if not stack.requirements:
        return None
    try:
        return existing(stack, base_interpreter(stack), cache)
    except MlmsError:
        return None


def _content(stack: Stack) -> str:
    if stack.endpoint:
        return f"endpoint {stack.endpoint}"
    if stack.serve:
        server = f"server {shlex.join(stack.serve.command)}"
        return ", ".join([*stack.requirements, server])
    if stack.container:
        return f"container {stack.container}"
    if stack.requirements:
        return ", ".join(stack.requirements)
    if stack.agent:
        return f"agent {shlex.join(stack.agent)}"
    return f"interpreter {stack.interpreter}"


def _state(stack: Stack, made: Environment | None) -> str:
    """Return whether a stack's environment has been made, and with which Python."""
    if made:
        return _made_state(made)
    if stack.container:
        return ""
    try:
        if stack.agent:
            find_program(stack)
            return "a program"
        python = base_interpreter(stack)
    except MlmsError as error:
        problem, _, _ = str(error).partition(";")
        return problem
    if stack.requirements:
        return f"not made, Python {python.version}"
    return f"Python {python.version}"


def _made_state(made: Environment) -> str:
    return f"made, Python {made.python}, {_shown_size(made.folder)}"


def _shown_size(folder: Path) -> str:
    size = sum(path.lstat().st_size for path in folder.rglob("*"))
    return format_quantity(size, "B")
