"""Agents in containers: podman or docker runs the image, which sees the agent's files, read-only,
and no network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import mlms_predictors

from pytest_mlms.errors import StackError, Unavailable
from pytest_mlms.records import Launch, Stack
from pytest_mlms.stacks.installers import Show

__all__ = ["ENGINES", "find_engine", "in_container"]

ENGINES = ("podman", "docker")
_LIMITS = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"]
_WAYS: dict[str, list[list[str]]] = {
    "podman": [
        [],
        [*_LIMITS],
        ["--runtime=runc", *_LIMITS],
    ],  # the last without cgroup v2 and CAP_SYS_RESOURCE
    "docker": [[]],
}
_LAST = 6  # lines of an engine that failed
_SECONDS = 120


def in_container(
    stack: Stack, own: Mapping[str, str], mounts: Iterable[Path], show: Show
) -> Launch:
    """Return how to start an agent in the stack's image; ``own`` is all of the environment that is
    set there.

    Raises Unavailable where there is no engine, StackError where the image can't be had or run.
    """
    image, python = str(stack.container), stack.interpreter or "python3"
    engine = _engine_for(stack)
    identity = _identity(engine, image) or _pull(engine, image, stack, show)
    way = _way(engine, identity, python, stack.name)
    seen = dict.fromkeys(
        str(path.absolute()) for path in [Path(str(mlms_predictors.__file__)).parent, *mounts]
    )
    command = [engine, "run", "--rm", "--interactive", "--name={agent}", *way, *_SEALED]
    command += [f"--volume={path}:{path}:ro" for path in seen if not _inside(path, seen)]
    command += [f"--env={name}={value}" for name, value in own.items()]
    ended = (engine, "rm", "--force", "--volumes", "{agent}")
    inner = [identity, python, "-s", "-B"]
    return Launch(
        (*command, *inner), dict(os.environ), stack.cores, (f"{image} @ {identity}",), ended
    )


_SEALED = ["--network=none", "--env=PYTHONNOUSERSITE=1", "--entrypoint="]


def find_engine() -> str | None:
    """Return the first engine that answers; docker's command is often there without its service."""
    return next((name for name in ENGINES if _answers(name)), None)


@lru_cache(maxsize=8)
def _answers(name: str) -> bool:
    return shutil.which(name) is not None and _run([name, "version"]).returncode == 0


def _engine_for(stack: Stack) -> str:
    engine = find_engine()
    if engine is None:
        raise Unavailable(
            f"stack {stack.name} is a container, and neither podman nor docker answers; install podman"
        )
    return engine


def _inside(path: str, others: Iterable[str]) -> bool:
    return any(Path(other) in Path(path).parents for other in others)


def _identity(engine: str, image: str) -> str | None:
    done = _run([engine, "image", "inspect", "--format={{.Id}}", image])
    return done.stdout.strip() if done.returncode == 0 else None


def _pull(engine: str, image: str, stack: Stack, show: Show) -> str:
    show(f"{engine} pulls {image}")
    try:
        done = _run([engine, "pull", "--quiet", image], seconds=3600)
        identity = _identity(engine, image) if done.returncode == 0 else None
    finally:
        show("")
    if identity is None:
        raise StackError(
            f"stack {stack.name}: {engine} has no image {image} and can't pull it\n{_last(done.stderr)}"
        )
    return identity


@lru_cache(maxsize=64)
def _way(engine: str, identity: str, python: str, name: str) -> tuple[str, ...]:
    """Return the options that a container needs on this machine, found by starting its Python."""
    said = ""
    for way in _WAYS[engine]:
        done = _run(
            [
                engine,
                "run",
                "--rm",
                *way,
                *_SEALED,
                identity,
                python,
                "-c",
                "import sys; print(sys.version)",
            ]
        )
        if done.returncode == 0 and re.match(r"3\.\d+", done.stdout):
            return tuple(way)
        said = said or done.stderr or done.stdout
    raise StackError(
        f"stack {name}: {engine} can't run {python} of image {identity[:19]}\n{_last(said)}"
    )


def _run(command: Sequence[str], seconds: float = _SECONDS) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 127, "", f"{command[0]}: {error}")


def _last(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-_LAST:])
