"""Stacks of earlier runs, declared and made again from what their results recorded.

What can't be recreated is a StackError that names the package, the Python, the image, the variable
or the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import MlmsError, StackError
from pytest_mlms.core.recorded import without_devices
from pytest_mlms.core.records import Launch, Library, Serve, Stack
from pytest_mlms.core.units import parse_quantity
from pytest_mlms.provide.stacks.environments import existing
from pytest_mlms.provide.stacks.exact import (
    NOT_IN_AGENTS,
    ExactSoftware,
    RecordedStack,
    recreated_stack,
)
from pytest_mlms.provide.stacks.exact_packages import parse_package
from pytest_mlms.provide.stacks.index import reason_of
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.launch import base_interpreter, caller_variables, prepare
from pytest_mlms.provide.stacks.recorded import HIDDEN, declaration_of, with_packages
from pytest_mlms.provide.stacks.trust import Trust, trusted_keys

DECLARED = ".stacks"
"""The folder beside runs that has the stacks.yaml of those whose stacks a command declared."""

_NOT_FOUND = re.compile(r"(?:No matching distribution found for|no version of) (\S+==\S+)")
"""Lines of pip and uv on a package that the index lacks."""


def recreate(
    name: str,
    recorded: RecordedStack,
    cache: Path,
    trust: Trust,
    passthrough: Iterable[str] = (),
    driver: str = "",
) -> Stack:
    """Return a stack of this name that is a recorded one again; nothing is made.

    A stack that is on this machine as it was is declared as it was, as far as ``trust`` takes that.
    ``passthrough`` are patterns of variables that its agents get beside its own. ``driver`` is the
    version of this machine's GPU driver, "" where there is none: no environment has another one.
    Raises StackError, which names what can't be recreated.
    """
    _check_secrets(recorded)
    if recorded.driver and recorded.driver != driver:
        problem = (
            f"it ran with the GPU's driver {recorded.driver}, and here is {driver or 'unknown'}"
        )
        advice = "a driver can't be recreated: compare two hosts, see docs/distribution.md"
        raise _cannot(recorded, f"{problem}; {advice}")
    recorded = _with_inherited(recorded, passthrough)
    if recorded.missing:
        raise _cannot(recorded, f"its packages are not known: {recorded.missing}; measure it again")
    declared = replace(_declared_stack(recorded, trust), name=name)
    if _has_same_packages(declared, recorded, cache):
        return declared
    exact = ExactSoftware(recorded.name, recorded.framework, recorded.python, recorded.packages)
    return recreated_stack(name, exact, trust, like=declared)


def write_stacks(path: Path, stacks: Mapping[str, Stack]) -> None:
    """Write a stacks.yaml that declares these stacks, by name."""
    entries = {}
    for name, stack in stacks.items():
        entry = {"framework": stack.framework, **declaration_of(stack)}
        if stack.env:  # a declaration hides secrets
            entry["env"] = dict(stack.env)
        if stack.model_options:
            entry["options"] = dict(stack.model_options)
        if stack.threads:
            entry["threads"] = stack.threads
        if stack.cores:
            entry["cores"] = list(stack.cores)
        entries[name] = entry
    path.write_text(json.dumps(entries, indent=1), encoding="utf-8")


@contextlib.contextmanager
def declared_for_run(stacks: Mapping[str, Stack], results: Path) -> Iterator[str]:
    """Yield a new folder whose stacks.yaml declares the stacks of a run.

    It stays in the folder of results, as commands in the run's results name it. Stacks with a
    secret are declared elsewhere, for as long as the block runs. Raises MlmsError where the folder
    can't be written.
    """
    has_secrets = any(HIDDEN in str(declaration_of(stack)) for stack in stacks.values())
    with contextlib.ExitStack() as until_the_end:
        if has_secrets:
            temporary = tempfile.TemporaryDirectory(prefix="mlms-stacks-")
            folder = Path(until_the_end.enter_context(temporary))
        else:
            folder = results / DECLARED / os.urandom(4).hex()
        try:
            folder.mkdir(parents=True, exist_ok=has_secrets)
            write_stacks(folder / "stacks.yaml", stacks)
        except OSError as error:
            problem = f"{folder}: the stacks can't be written: {error.strerror}"
            raise MlmsError(f"{problem}; make room, or name another --mlms-results") from None
        yield str(folder)


def make_stack(stack: Stack, recorded: RecordedStack, cache: Path, show: Show) -> Launch:
    """Make the environment of a recreated stack.

    Raises StackError, which names the package that can't be had any more.
    """
    try:
        return prepare(stack, cache, threads=recorded.threads, show=show)
    except MlmsError as error:
        problem = str(error)
        found = _NOT_FOUND.search(problem)
    if found is not None:
        package = found[1].rstrip(",.;)")
        problem = f"{package} {reason_of(package, stack, recorded.python)}"
    raise _cannot(recorded, problem)


def _cannot(recorded: RecordedStack, problem: str) -> StackError:
    return StackError(f"stack {recorded.name} can't be recreated: {problem}")


def _check_secrets(recorded: RecordedStack) -> None:
    for name, value in recorded.declared.get("env", {}).items():
        if value == HIDDEN:
            problem = f"results don't keep the value of its variable {name}"
            advice = f"declare it as 'env_passthrough: [{name}]' instead"
            raise _cannot(recorded, f"{problem}; {advice}")


def _with_inherited(recorded: RecordedStack, passthrough: Iterable[str]) -> RecordedStack:
    """Return the stack with the variables that its caller had, and ours has not.

    Raises StackError for one that only ours has, as agents get what they would not have had.
    """
    if recorded.inherited is None:
        return recorded
    here = caller_variables(recorded.declared, passthrough)
    added = sorted(without_devices(here).keys() - recorded.inherited.keys())
    if added:
        problem = f"{added[0]} is set here, and it was measured without"
        raise _cannot(recorded, f"{problem}; unset it")
    wanted = {name: value for name, value in recorded.inherited.items() if here.get(name) != value}
    hidden = [name for name, value in wanted.items() if value == HIDDEN]
    if hidden:
        raise _cannot(recorded, f"results don't keep the value of {hidden[0]}; set it as it was")
    if not wanted:
        return recorded
    env = {**wanted, **(recorded.declared.get("env") or {})}
    return replace(recorded, declared={**recorded.declared, "env": env})


def _declared_stack(recorded: RecordedStack, trust: Trust) -> Stack:
    """Return the stack as it was declared, with the threads and cores of the item."""
    declared = trusted_keys(recorded.declared, trust, recorded.name)
    libraries = declared.get("libraries", {}).items()
    return Stack(
        recorded.name,
        recorded.framework,
        interpreter=declared.get("interpreter"),
        python=declared.get("python"),
        requirements=tuple(declared.get("requirements", ())),
        installer=declared.get("installer", "pip"),
        options=tuple(declared.get("pip_options", ())),
        lock=Path(declared["lock"]) if "lock" in declared else None,
        container=declared.get("container"),
        libraries=tuple(Library(name, **found) for name, found in libraries),
        env=tuple(declared.get("env", {}).items()),
        env_passthrough=tuple(declared.get("env_passthrough", ())),
        variant=declared.get("variant", ""),
        model_options=tuple(declared.get("options", {}).items()),
        threads=recorded.threads,
        cores=recorded.cores,
        agent=tuple(declared.get("agent", {}).get("command", ())),
        serve=_serve(declared.get("serve")),
        endpoint=declared.get("endpoint", ""),
    )


def _serve(declared: Mapping[str, Any] | None) -> Serve | None:
    if not declared:
        return None
    timeout = parse_quantity(declared["timeout"], "s")
    return Serve(tuple(declared["command"]), declared.get("ready", ""), timeout)


def _has_same_packages(stack: Stack, recorded: RecordedStack, cache: Path) -> bool:
    """Return whether a stack, as it was declared, has the recorded packages today."""
    if stack.container or not (stack.agent or stack.requirements or stack.interpreter):
        return False
    try:
        if stack.agent:
            return _comparable(prepare(stack, cache).lock) == _comparable(recorded.packages)
        interpreter = base_interpreter(stack)
        if stack.requirements:
            made = existing(stack, interpreter, cache)
            packages = made.lock if made else ()
        else:
            packages = with_packages(prepare(stack, cache)).packages
    except MlmsError:
        return False
    if interpreter.version != recorded.python:
        return False
    return _comparable(packages) == _comparable(recorded.packages)


def _comparable(lines: tuple[str, ...]) -> list[str]:
    found = []
    for line in lines:
        package = parse_package(line)
        if package is None or package.key not in NOT_IN_AGENTS:
            found.append(line)
    return found
