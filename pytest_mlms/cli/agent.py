"""``mlms agent check``: whether a program of one's own is an agent, by docs/agents.md."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from pytest_mlms.cli.arguments import positive, seconds_above_0
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack

_FRAMEWORK = "onnxruntime"
_OWN_MODEL = ("pytest_mlms.keep.history", "control.onnx")
"""A network whose outputs are all the mean of its inputs, if that is above 0."""


def add_agent(commands: Any) -> None:
    """Add the command with its action."""
    group = commands.add_parser("agent", help="check a program of your own that runs models")
    actions = group.add_subparsers(required=True, metavar="ACTION")
    parser = actions.add_parser(
        "check", help="say which requirement of docs/agents.md an agent doesn't meet"
    )
    parser.add_argument(
        "--framework",
        default=_FRAMEWORK,
        metavar="NAME",
        help="framework whose models it runs (default: %(default)s)",
    )
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="ROLE=PATH",
        dest="files",
        help="file of a model to load, such as graph=net.onnx; may be repeated (default: a network "
        "of ours as ONNX, whose outputs are known)",
    )
    parser.add_argument("--device", default="cpu", help="device to use (default: %(default)s)")
    parser.add_argument(
        "--size", type=positive, default=2, metavar="N", help="size of free axes of the inputs"
    )
    parser.add_argument(
        "--timeout",
        type=seconds_above_0,
        default=30.0,
        metavar="SECONDS",
        help="longest wait for a reply (default: %(default)g)",
    )
    parser.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="COMMAND…",
        help="the program and its arguments, after all options",
    )
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    """Print each requirement, and whether it is met; return 1 where one isn't."""
    from pytest_mlms.measure.agent.channel import temporary_log
    from pytest_mlms.measure.agent.conformance import Subject, check_agent
    from pytest_mlms.provide.stacks.launch import prepare

    command = _command(options.command)
    given = _files(options)
    stack = Stack("check", options.framework, agent=command)
    counts = {"ok": 0, "FAILED": 0, "-": 0}
    own = files(_OWN_MODEL[0]).joinpath(_OWN_MODEL[1])
    with as_file(own) as model, temporary_log("mlms-agent-") as log:
        subject = Subject(
            launch=prepare(stack, Path()),
            framework=options.framework,
            files=given or {"graph": model},
            log=log,
            timeout=options.timeout,
            device=options.device,
            answer=None if given else mean_of,
            size=options.size,
        )
        for requirement, problem in check_agent(subject):
            mark = "-" if problem is None else "FAILED" if problem else "ok"
            counts[mark] += 1
            print(f"{mark:7}{requirement.name}: {problem or requirement.text}", flush=True)
            if problem:
                print(f"       agents.md asks: {requirement.text}")
    met, failed, unchecked = counts.values()
    print(f"{shlex.join(command)}: {met} met, {failed} failed, {unchecked} not checked")
    return 1 if failed else 0


def _command(words: list[str]) -> tuple[str, ...]:
    """Return the command, whose program is a path from any folder, or a name on PATH."""
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise MlmsError("name the program, as in: mlms agent check ./my_agent")
    program = command[0]
    if "/" in program:
        program = str(Path(program).expanduser().absolute())
    return (program, *command[1:])


def _files(options: argparse.Namespace) -> Mapping[str, Path]:
    found = {}
    for text in options.files:
        role, _, path = text.partition("=")
        if not path:
            raise MlmsError(f"--file {text}: write ROLE=PATH, as in graph=net.onnx")
        found[role] = Path(path).absolute()
        if not found[role].exists():
            raise MlmsError(f"--file {text}: there is no such file")
    if not found and options.framework != _FRAMEWORK:
        raise MlmsError(f"name a model of {options.framework} with --file graph=PATH")
    return found


def mean_of(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the right outputs of our network for these inputs."""
    import numpy as np

    x = inputs["x"]
    return {"y": np.broadcast_to(x.mean(axis=1, keepdims=True), x.shape)}
