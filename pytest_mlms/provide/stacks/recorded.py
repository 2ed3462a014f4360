"""A stack as results keep it: the keys of stacks.yaml, and the packages of its interpreter."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import mlms_predictors

from pytest_mlms.core.records import Launch, Serve, Stack
from pytest_mlms.provide.stacks.variables import is_secret

HIDDEN = "***"
"""The value of a variable or an option that looks like a secret, by its name or its value."""


def declaration_of(stack: Stack) -> dict[str, Any]:
    """Return the keys of stacks.yaml that declare ``stack``, without its name and framework.

    An entry of stacks.yaml with these keys is the same stack, as far as nobody installs other
    packages: paths are absolute. Keys that have their defaults are left out, as are threads and
    cores, which results have beside it.
    """
    libraries = {
        library.name: {"library": library.library, "package": library.package}
        for library in stack.libraries
    }
    keys = {
        "interpreter": stack.interpreter,
        "python": stack.python,
        "requirements": list(stack.requirements),
        "installer": "" if stack.installer == "pip" else stack.installer,
        "pip_options": list(stack.options),
        "lock": str(stack.lock or ""),
        "container": stack.container,
        "agent": {"command": list(stack.agent)} if stack.agent else {},
        "serve": _serve(stack.serve) if stack.serve else {},
        "endpoint": stack.endpoint,
        "libraries": libraries,
        "variant": stack.variant,
        "options": _without_secrets(dict(stack.model_options)),
        "env": _without_secrets(dict(stack.env)),
        "env_passthrough": list(stack.env_passthrough),
    }
    return {key: value for key, value in keys.items() if value}


def _serve(serve: Serve) -> dict[str, Any]:
    found: dict[str, Any] = {"command": list(serve.command), "timeout": f"{serve.timeout!r} s"}
    return {**found, "ready": serve.ready} if serve.ready else found


def _without_secrets(env: Mapping[str, Any]) -> dict[str, Any]:
    return {name: HIDDEN if is_secret(name, str(value)) else value for name, value in env.items()}


NOT_FROM_INDEX = " # "
"""Between an exact package and its origin, which no index is: an editable folder, conda, Debian."""

_PROGRAM = Path(str(mlms_predictors.__file__)).parent / "_run" / "installed.py"
_SECONDS = 60  # for the list
_THREADS = "_NUM_THREADS"  # the end of variables that differ from item to item


class _NotListed(Exception):
    """An interpreter doesn't list its packages; the text says why."""


def with_packages(launch: Launch) -> Launch:
    """Return ``launch`` with the packages of its interpreter.

    An environment that was made has its ``lock``, and a container the id of its image: neither is
    asked. An interpreter is asked once in a process. The command and the variables are those of its
    agents, so that it finds what they find. Where it gives no answer, ``lacking`` has the reason.
    """
    if launch.lock:
        return launch
    env = {name: value for name, value in launch.env.items() if not name.endswith(_THREADS)}
    try:
        packages = _packages_of(launch.command, tuple(sorted(env.items())))
    except _NotListed as error:
        return replace(launch, lacking=str(error))
    return replace(launch, packages=packages)


@lru_cache(maxsize=64)
def _packages_of(command: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return a line for each package; raises _NotListed."""
    done = _ask(command, env)
    try:
        last_line = done.stdout.splitlines()[-1]
        entries = json.loads(last_line)
        return tuple(_line(*entry) for entry in entries)
    except (ValueError, TypeError, IndexError):
        problem = f"{command[0]} listed no packages and ended with status {done.returncode}"
        _, _, reason = done.stderr.strip().rpartition("\n")
        if reason:
            problem = f"{problem}: {reason}"
        raise _NotListed(problem) from None


def _ask(
    command: tuple[str, ...], env: tuple[tuple[str, str], ...]
) -> subprocess.CompletedProcess[str]:
    """Have an interpreter list its packages; raises _NotListed where it can't be run."""
    try:
        return subprocess.run(
            [*command, str(_PROGRAM)],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=dict(env),
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _NotListed(f"{command[0]} did not list its packages in {_SECONDS} s") from None
    except OSError as error:
        raise _NotListed(f"{command[0]} can't be run: {error.strerror}") from None


def _line(name: str, version: str, origin: str) -> str:
    if origin:
        return f"{name}=={version}{NOT_FROM_INDEX}{origin}"
    return f"{name}=={version}"
