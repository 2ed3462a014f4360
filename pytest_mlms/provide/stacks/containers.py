"""Launching agents in containers, by podman or docker.

A container sees the agent's files read-only, the one GPU that it is for, and no network.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import mlms_predictors

from pytest_mlms.core.errors import StackError, Unavailable
from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.variables import chosen_by_caller, passed_through

_ENGINES = ("podman", "docker")

_ISOLATION = (
    "--network=none",
    "--security-opt=label=disable",  # SELinux lets no container read files of the host else
    "--env=PYTHONNOUSERSITE=1",
    "--entrypoint=",
)
_LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000")
_OPTIONS: dict[str, list[tuple[str, ...]]] = {
    "podman": [(), _LIMITS, ("--runtime=runc", *_LIMITS)],
    "docker": [()],
}
"""Options to try, in this order: podman's last are for machines without cgroup v2 and
CAP_SYS_RESOURCE.
"""

_GPU_OPTION = {"podman": "--device=nvidia.com/gpu={}", "docker": "--gpus=device={}"}
"""The option that gives a container the GPU of a UUID; podman finds it by CDI, in which
NVIDIA's toolkit names GPUs by their UUIDs from version 1.15 on."""
_GPU_ADVICE = {
    "podman": "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    "docker": "nvidia-ctk runtime configure --runtime=docker",
}
_ONLY_GPU = "cuda:0"  # in a container

_COMMAND_SECONDS = 120
_PULL_SECONDS = 3600
_SHOWN_LINES = 6  # of an engine that failed
_SHOWN_DIGITS = 19  # of an image's id


class Visible(NamedTuple):
    """The part of the machine that a container sees: files, folders, a GPU by its UUID or none."""

    paths: Iterable[Path]
    gpu: str = ""


class _Image(NamedTuple):
    """An image that an engine has: its id, and the command of its Python."""

    engine: str
    identity: str
    python: str


def launch_in_container(
    stack: Stack, env: Mapping[str, str], visible: Visible, show: Show
) -> Launch:
    """Return how to start an agent in the stack's image.

    Its environment is ``env``, and what the stack passes on; the engine has pytest's own.
    Raises Unavailable where there is no engine or it can't give a container the GPU, and StackError
    where the image can't be had or run.
    """
    engine = engine_for(stack)
    identity = _find_or_pull(engine, stack, show)
    image = _Image(engine, identity, stack.interpreter or "python3")
    predictors = Path(str(mlms_predictors.__file__)).parent
    command = [engine, "run", "--rm", "--interactive", "--name={agent}"]
    command += _working_options(image, stack.name)
    if visible.gpu:
        command.append(_gpu_option(image, stack.name, visible.gpu))
    command += _ISOLATION
    for path in _outermost([predictors, *visible.paths]):
        command.append(_mount(path))
    passed = passed_through(os.environ, stack.env_passthrough)
    for name in passed:
        command.append(f"--env={name}")  # the engine takes the value from its own environment
    for name, value in env.items():
        command.append(f"--env={name}={value}")
    command += [identity, image.python, "-s", "-B"]
    return Launch(
        command=tuple(command),
        env=dict(os.environ),
        cores=stack.cores,
        lock=(f"{stack.container} @ {identity}",),
        end=(engine, "rm", "--force", "--volumes", "{agent}"),
        inherited=chosen_by_caller(passed, env, stack.env_passthrough),
        device=_ONLY_GPU if visible.gpu else "",
    )


def has_image(stack: Stack) -> bool:
    """Return whether a stack's image needs no pull; raises as ``engine_for`` does."""
    return _identity(engine_for(stack), str(stack.container)) is not None


def find_engine() -> str | None:
    """Return the first engine that answers; docker's command is often there without its service."""
    for name in _ENGINES:
        if _answers(name):
            return name
    return None


@lru_cache(maxsize=8)
def _answers(name: str) -> bool:
    if shutil.which(name) is None:
        return False
    return _run([name, "version"]).returncode == 0


def engine_for(stack: Stack) -> str:
    """Return the engine that runs a stack's container; raises Unavailable where there is none."""
    engine = find_engine()
    if engine is None:
        problem = f"stack {stack.name} is a container, and neither podman nor docker answers"
        raise Unavailable(f"{problem}; install podman")
    return engine


def _mount(path: Path) -> str:
    """Return the option that shows a path read-only; one with a colon can't be a volume."""
    if ":" in str(path):
        return f"--mount=type=bind,source={path},target={path},readonly"
    return f"--volume={path}:{path}:ro"


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Return the paths, each once, without those inside another: a mount has all below it."""
    unique = dict.fromkeys(path.absolute() for path in paths)
    found = []
    for path in unique:
        if unique.keys().isdisjoint(path.parents):
            found.append(path)
    return found


def _find_or_pull(engine: str, stack: Stack, show: Show) -> str:
    """Return the id of the stack's image, pulled where the engine doesn't have it."""
    image = str(stack.container)
    identity = _identity(engine, image)
    if identity:
        return identity
    show(f"{engine} pulls {image}")
    try:
        done = _run([engine, "pull", "--quiet", image], _PULL_SECONDS)
        identity = _identity(engine, image)
    finally:
        show("")
    if done.returncode or identity is None:
        problem = f"{engine} has no image {image} and can't pull it"
        raise _failure(stack.name, problem, done.stderr)
    return identity


def _identity(engine: str, image: str) -> str | None:
    done = _run([engine, "image", "inspect", "--format={{.Id}}", image])
    if done.returncode:
        return None
    return done.stdout.strip()


@lru_cache(maxsize=64)
def _working_options(image: _Image, stack: str) -> tuple[str, ...]:
    """Return the options that a container needs on this machine, found by starting its Python."""
    output = ""
    for options in _OPTIONS[image.engine]:
        done = _start_python(image, options)
        if done.returncode == 0 and re.match(r"3\.\d+", done.stdout):
            return options
        if not output:  # the first failure is that of the plain options
            output = done.stderr or done.stdout
    identity = image.identity[:_SHOWN_DIGITS]
    problem = f"{image.engine} can't run {image.python} of image {identity}"
    raise _failure(stack, problem, output)


@lru_cache(maxsize=64)
def _gpu_option(image: _Image, stack: str, gpu: str) -> str:
    """Return the option that gives a container a GPU, tried by starting its Python with it."""
    engine = image.engine
    option = _GPU_OPTION[engine].format(gpu)
    done = _start_python(image, (*_working_options(image, stack), option))
    if done.returncode:
        problem = f"stack {stack}: {engine} can't give a container GPU {gpu}"
        advice = f"install NVIDIA's container toolkit 1.15 or later, and run {_GPU_ADVICE[engine]}"
        raise Unavailable(f"{problem}; {advice}{_last_lines(done.stderr)}")
    return option


def _start_python(image: _Image, options: Iterable[str]) -> subprocess.CompletedProcess[str]:
    question = [image.identity, image.python, "-I", "-c", "import sys; print(sys.version)"]
    return _run([image.engine, "run", "--rm", *options, *_ISOLATION, *question])


def _run(
    command: Sequence[str], seconds: float = _COMMAND_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a command of an engine; one that can't be run or gives no answer has status 127."""
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
        failure = f"{command[0]}: {error}"
        return subprocess.CompletedProcess(command, 127, stdout="", stderr=failure)


def _failure(stack: str, problem: str, output: str) -> StackError:
    """Return the error of an engine that failed, with the last lines of its output."""
    return StackError(f"stack {stack}: {problem}{_last_lines(output)}")


def _last_lines(output: str) -> str:
    """Return the last lines of an engine's output, each on an indented line of its own."""
    lines = output.strip().splitlines()
    shown = "\n".join(lines[-_SHOWN_LINES:])
    return "\n" + textwrap.indent(shown, "    ")
