"""Stacks whose agent is a program: where it is found, its identity, and who may have it run."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.errors import (
    AgentError,
    ManifestError,
    MlmsError,
    StackError,
    Unavailable,
)
from pytest_mlms.core.records import Stack
from pytest_mlms.measure.agent.process import start_agent
from pytest_mlms.provide.stacks.declared import check_framework
from pytest_mlms.provide.stacks.exact import ExactSoftware, recreated_stack
from pytest_mlms.provide.stacks.launch import check_host, prepare
from pytest_mlms.provide.stacks.programs import program_lines
from pytest_mlms.provide.stacks.schema import load_stacks
from pytest_mlms.provide.stacks.trust import EVERYTHING

PROGRAM = "#!/bin/sh\nexit 3\n"


def declared(folder: Path, text: str) -> Stack:
    """Return the stack ``own`` of a stacks.yaml in the folder."""
    path = folder / "stacks.yaml"
    path.write_text(f"own: {text}\n")
    return load_stacks(path)["own"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "my_agent"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    return path


@pytest.fixture
def stack(program: Path) -> Stack:
    return declared(
        program.parent, "{framework: onnxruntime, agent: {command: [./my_agent, --fast]}}"
    )


def test_paths_of_a_command_are_relative_to_its_file(tmp_path: Path) -> None:
    command = "[bin/agent, ./weights, ../library.so, --file=./x, data/y]"
    stack = declared(tmp_path, f"{{framework: onnxruntime, agent: {{command: {command}}}}}")
    assert stack.agent == (
        str(tmp_path / "bin/agent"),
        str(tmp_path / "weights"),
        str(tmp_path.parent / "library.so"),
        "--file=./x",
        "data/y",
    )
    stack = declared(tmp_path, "{framework: onnxruntime, agent: {command: [python3, -u]}}")
    assert stack.agent == ("python3", "-u")


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ("{agent: {command: [./a]}}", "'framework' is missing"),
        ("{framework: f, agent: {command: []}}", "agent.command"),
        ("{framework: f, agent: {command: ['']}}", "agent.command"),
        ("{framework: f, agent: {}}", "command"),
        ("{framework: f, agent: {command: ./a}}", "agent.command"),
        ("{framework: f, agent: {command: [./a], shell: true}}", "shell"),
        ("{framework: f, agent: {command: [./a]}, container: 'a:1'}", "leave out 'container'"),
        ("{framework: f, agent: {command: [./a]}, requirements: [a]}", "leave out 'requirements'"),
        ("{framework: f, agent: {command: [./a]}, interpreter: current}", "'interpreter'"),
        (
            "{framework: f, agent: {command: [./a]}, python: '3.11'}",
            "'python' is for an environment",
        ),
    ],
)
def test_an_entry_that_is_wrong_is_an_error_at_its_line(
    entry: str, error: str, tmp_path: Path
) -> None:
    with pytest.raises(ManifestError) as raised:
        declared(tmp_path, entry)
    assert "stacks.yaml:1: " in str(raised.value)
    assert error in str(raised.value)


def test_a_program_that_is_not_there_is_an_error_at_the_stacks_line(tmp_path: Path) -> None:
    stack = declared(tmp_path, "{framework: onnxruntime, agent: {command: [./nowhere]}}")
    for use in (check_host, lambda one: prepare(one, tmp_path)):
        with pytest.raises(StackError, match=r"stacks\.yaml:1: stack own: there is no program"):
            use(stack)


def test_a_file_that_is_no_program_is_an_error(program: Path, stack: Stack) -> None:
    program.chmod(0o644)
    if os.access(program, os.X_OK):
        pytest.skip("this user may execute any file")
    with pytest.raises(StackError, match="can't be executed; chmod"):
        check_host(stack)


def test_a_name_that_is_not_on_path_is_unavailable(tmp_path: Path) -> None:
    stack = declared(tmp_path, "{framework: onnxruntime, agent: {command: [mlms-nowhere]}}")
    with pytest.raises(Unavailable, match="stack own: its agent, mlms-nowhere, is not on PATH"):
        check_host(stack)


def test_a_launch_is_the_command_with_the_digests_of_its_files(
    program: Path, stack: Stack, tmp_path: Path
) -> None:
    stack = replace(stack, env=(("DATA", "{stack}/data"),), threads=2)
    launch = prepare(stack, tmp_path)
    assert launch.is_agent
    assert launch.command == (str(program), "--fast")
    assert launch.env["DATA"] == f"{tmp_path}/data"
    assert launch.env["OMP_NUM_THREADS"] == "2"
    (line,) = launch.lock
    assert line.startswith("program my_agent @ sha256=")
    program.write_text(PROGRAM + "# another\n")
    assert prepare(stack, tmp_path).lock != launch.lock
    more = replace(stack, agent=(str(program), str(tmp_path / "stacks.yaml")))
    assert [line.split()[1] for line in prepare(more, tmp_path).lock] == ["my_agent", "stacks.yaml"]


def test_an_agent_has_options_of_its_own(stack: Stack) -> None:
    check_framework(replace(stack, model_options=(("mine", 1),)), ["onnxruntime"])
    with pytest.raises(StackError, match="no predictor for"):
        check_framework(replace(stack, framework="unknown"), ["onnxruntime"])


def start(stack: Stack, folder: Path) -> str:
    """Return the error of an agent that doesn't say hello."""
    agent = start_agent(prepare(stack, folder), Path(), folder / "log", 60)
    try:
        with pytest.raises(AgentError) as raised:
            agent.request("hello")
    finally:
        agent.close()
    return str(raised.value)


def test_a_program_that_ends_is_told_by_its_status(stack: Stack, tmp_path: Path) -> None:
    assert "ended while it did 'hello': exit status 3" in start(stack, tmp_path)


def test_a_program_that_can_not_be_started_says_why(
    program: Path, stack: Stack, tmp_path: Path
) -> None:
    program.write_bytes(b"\x7fELF" + bytes(60))
    assert f"{program} can't be started: " in start(stack, tmp_path)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are Linux's")
def test_a_program_is_held_to_the_cores_of_its_stack(program: Path, tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    program.write_text(
        f"#!{sys.executable}\nimport os, signal, sys\n"
        "print(os.sched_getaffinity(0), signal.getsignal(signal.SIGPIPE), file=sys.stderr)\n"
    )
    stack = Stack("own", "f", agent=(str(program),), cores=(core,))
    assert f"{{{core}}}" in start(stack, tmp_path)


def recreated(stack: Stack, packages: tuple[str, ...]) -> Stack:
    exact = ExactSoftware("own", "onnxruntime", "", packages)
    return recreated_stack("before", exact, EVERYTHING, stack)


def test_a_stack_is_made_again_where_its_program_is_the_same(program: Path, stack: Stack) -> None:
    lines = program_lines(stack)
    assert recreated(stack, lines).agent == stack.agent
    program.write_text(PROGRAM + "# another\n")
    with pytest.raises(MlmsError, match="it ran program my_agent @ sha256=.* this very file"):
        recreated(stack, lines)


def test_no_package_is_installed_in_the_place_of_a_program() -> None:
    """A line of a program is no name and version, which an index may have of a stranger."""
    with pytest.raises(StackError, match="can't be made again: it ran program x"):
        recreated(Stack("own", "onnxruntime"), (f"program x @ sha256={64 * 'a'}",))
