"""Files that declare stacks: stacks.yaml and pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_mlms.core.errors import ManifestError
from pytest_mlms.core.records import Library, Serve, Stack
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.stacks.schema import is_wheel, load_stacks
from tests.support.project import ROOT


def write(folder: Path, text: str, name: str = "stacks.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def errors_of(path: Path) -> list[str]:
    """Return the errors of a file, without its name."""
    with pytest.raises(ManifestError) as raised:
        load_stacks(path)
    lines = str(raised.value).splitlines()
    return [line.partition(f"{path.name}:")[2] for line in lines]


WHOLE = """
mxnet-1.9:
  framework: mxnet
  python: "3.11"
  requirements: [mxnet==1.9.1, "numpy < 2", wheels/own.whl, "a @ https://example.invalid/a.whl"]
  installer: uv
  pip_options: [--no-deps, --find-links=wheels]
  lock: mxnet.lock
  libraries: {libmpi.so.12: {library: libmpi.so.40, package: libopenmpi3}}
  env: {A: "{stack}/b"}
  threads: 2
  cores: [0, 1]
"""


def test_a_stack_has_everything_that_its_file_says(tmp_path: Path) -> None:
    stack = load_stacks(write(tmp_path, WHOLE))["mxnet-1.9"]
    assert stack == Stack(
        "mxnet-1.9",
        "mxnet",
        python="3.11",
        requirements=(
            "mxnet==1.9.1",
            "numpy<2",
            str(tmp_path / "wheels" / "own.whl"),
            "a @ https://example.invalid/a.whl",
        ),
        installer="uv",
        options=("--no-deps", f"--find-links={tmp_path / 'wheels'}"),
        lock=tmp_path / "mxnet.lock",
        libraries=(Library("libmpi.so.12", "libmpi.so.40", "libopenmpi3"),),
        env=(("A", "{stack}/b"),),
        threads=2,
        cores=(0, 1),
        place=stack.place,
    )
    assert str(stack.place).endswith("stacks.yaml:2")


def test_an_address_of_links_is_no_path(tmp_path: Path) -> None:
    text = "a: {framework: a, requirements: [six], pip_options: ['--find-links=https://x.org/w']}"
    assert load_stacks(write(tmp_path, text))["a"].options == ("--find-links=https://x.org/w",)


def test_the_path_of_an_interpreter_is_relative_to_its_file(tmp_path: Path) -> None:
    stack = load_stacks(write(tmp_path, "a: {interpreter: venv/bin/python}"))["a"]
    assert stack.interpreter == str(tmp_path / "venv/bin/python")


@pytest.mark.parametrize("interpreter", ["python3.11", "current", "/opt/bin/python"])
def test_other_interpreters_stay_as_they_are_written(tmp_path: Path, interpreter: str) -> None:
    stack = load_stacks(write(tmp_path, f"a: {{interpreter: {interpreter}}}"))["a"]
    assert stack.interpreter == interpreter
    assert stack.framework == ""


def test_the_interpreter_of_a_container_is_a_path_inside_of_it(tmp_path: Path) -> None:
    text = "a: {framework: caffe, container: 'caffe:1.0', interpreter: bin/python}"
    stack = load_stacks(write(tmp_path, text))["a"]
    assert stack.container == "caffe:1.0"
    assert stack.interpreter == "bin/python"


PYPROJECT = """[project]
name = "x"
[tool.mlms.stacks.one]
framework = "onnxruntime"
requirements = ["onnxruntime==1.30.0"]
[tool.mlms.stacks]
two = {interpreter = "current", threads = 1}
"""


def test_pyproject_declares_stacks_with_their_lines(tmp_path: Path) -> None:
    stacks = load_stacks(write(tmp_path, PYPROJECT, "pyproject.toml"))
    places = {name: str(stack.place).rpartition(":")[2] for name, stack in stacks.items()}
    assert places == {"one": "3", "two": "7"}
    assert stacks["two"].threads == 1


def test_an_error_in_pyproject_has_the_line_of_its_stack(tmp_path: Path) -> None:
    text = PYPROJECT.replace("threads = 1", "threats = 1")
    path = write(tmp_path, text, "pyproject.toml")
    assert errors_of(path) == ["7: two: unknown key 'threats'; did you mean 'threads'?"]


@pytest.mark.parametrize("text", ["[project", "[tool.mlms]\nstacks = 3\n", "\x00"])
def test_a_pyproject_that_can_not_be_read_is_an_error(tmp_path: Path, text: str) -> None:
    assert len(errors_of(write(tmp_path, text, "pyproject.toml"))) == 1


def test_a_pyproject_without_stacks_declares_none(tmp_path: Path) -> None:
    assert load_stacks(write(tmp_path, "[project]\nname = 'x'\n", "pyproject.toml")) == {}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{framework: onnxruntime}", "has nothing to run in; write 'requirements: […]'"),
        ("{requirements: [six]}", "'framework' is missing; write 'framework: …'"),
        ("{framework: a, python: 3.11, requirements: [six]}", "write a version in quotes"),
        ("{framework: a, requirements: [six], container: b}", "a container has its own packages"),
        ("{framework: a, requirements: [six], interpreter: b}", "is made with 'python'; leave"),
        ("{interpreter: current, lock: x}", "'lock' is for an environment; write its"),
        ("{interpreter: current, python: '3.11'}", "'python' is for an environment; write"),
        ("{framework: a, requirements: ['six = 1']}", "'six = 1' is not a requirement; write"),
        ("{interpreter: current, threads: 0}", "found 0; write"),
        ("{interpreter: current, cores: [-1]}", "found -1; write"),
        ("{interpreter: current, env: {A: 1}}", "found 1; write text"),
        ("{interpreter: current, env: {A=B: x}}", "found 'A=B'; write"),
        (
            "{interpreter: current, libraries: {a/b: {library: c, package: d}}}",
            "found 'a/b'; write",
        ),
        (
            "{framework: oip, serve: {command: [server]}}",
            "serve.command: no word has {port}, where the server gets its port; write it into one",
        ),
        ("{framework: oip, serve: {command: []}}", "serve.command: "),
        ("{framework: oip, serve: {command: ['{port}'], ready: ready}}", "a path, as in /v2/"),
        ("{framework: oip, serve: {command: ['{port}'], timeout: 5}}", "serve.timeout: "),
        ("{framework: oip, serve: {command: ['{port}'], timeout: 0 s}}", "serve.timeout: "),
        ("{framework: oip, serve: {command: ['{port}'], port: 1}}", "unknown key 'port'"),
        ("{serve: {command: ['{port}']}}", "'framework' is missing; write the predictor that"),
        ("{endpoint: 'http://127.0.0.1:1'}", "as in 'framework: oip'"),
        (
            "{framework: oip, endpoint: 'http://h:1', serve: {command: ['{port}']}}",
            "'serve' starts a server, and 'endpoint' names one; leave out one",
        ),
        (
            "{framework: oip, container: 'a:1', serve: {command: ['{port}']}}",
            "'serve' isn't there for 'container' yet",
        ),
        (
            "{framework: oip, agent: {command: [a]}, endpoint: 'http://127.0.0.1:1'}",
            "'endpoint' isn't there for 'agent' yet",
        ),
        ("{framework: oip, endpoint: '127.0.0.1:8000'}", "is no address of a server; write one"),
        ("{framework: oip, endpoint: 'ftp://host'}", "is no address of a server"),
        ("{framework: oip, endpoint: 'http://host:99999'}", "is no address of a server"),
        ("{framework: oip, endpoint: 'http://u:secret@host'}", "'http://***@host' is no address"),
        ("{framework: oip, endpoint: 'http://:secret@host'}", "'http://***@host' is no address"),
        ("{framework: oip, endpoint: 'http://host/?token=secret'}", "is no address of a server"),
        ("{framework: oip, endpoint: 'http://host/?'}", "is no address of a server"),
        ("{framework: oip, endpoint: 'http://host/é'}", "is no address of a server"),
        ("{interpreter: current, installer: conda}", "'conda' is not known; write one of pip, uv"),
        ("{interpreter: current, nonsense: 1}", "unknown key 'nonsense'; write one of"),
        ("just text", "found 'just text'; write keys and values"),
    ],
)
def test_an_error_has_its_line_and_what_to_write(tmp_path: Path, entry: str, message: str) -> None:
    (error,) = errors_of(write(tmp_path, f"# a comment\nmine: {entry}\n"))
    assert error.startswith("2: ")
    assert message in error


@pytest.mark.parametrize("option", ["--target=/", "--index-url", "--no-deps=1", "--user"])
def test_options_that_a_stack_may_not_have_are_errors(tmp_path: Path, option: str) -> None:
    text = f"mine: {{framework: a, requirements: [six], pip_options: [{option}]}}"
    (error,) = errors_of(write(tmp_path, text))
    assert f"'{option}' is not an option that a stack may have; write some of --no-deps" in error


THREE_ERRORS = """\
all: {interpreter: current}
'a b': {interpreter: current}
c: {interpreter: ''}
"""


def test_a_server_is_started_by_a_command_whose_paths_are_beside_the_file(tmp_path: Path) -> None:
    text = (
        "a: {framework: oip, serve: {command: [./run, '--port={port}', ./models], timeout: 2 min}}"
    )
    stack = load_stacks(write(tmp_path, text))["a"]
    command = (str(tmp_path / "run"), "--port={port}", str(tmp_path / "models"))
    assert stack.serve == Serve(command, "", 120.0)
    assert stack.interpreter == "current", "its client needs a Python"


def test_an_endpoint_needs_nothing_but_its_predictor(tmp_path: Path) -> None:
    stack = load_stacks(write(tmp_path, "a: {framework: oip, endpoint: 'http://[::1]:80/x'}"))["a"]
    assert (stack.endpoint, stack.interpreter) == ("http://[::1]:80/x", "current")


def test_all_errors_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    errors = errors_of(write(tmp_path, THREE_ERRORS))
    assert errors[0] == "1: 'all' means every stack that is declared; choose another name"
    assert errors[1].startswith("2: found 'a b'; write a stack's name in letters")
    assert errors[2].startswith("3: ")


def test_a_file_that_is_no_mapping_is_an_error(tmp_path: Path) -> None:
    message = "1: holds a list, not keys and values; a stack begins with 'name: {framework: …}'"
    assert errors_of(write(tmp_path, "- a\n")) == [message]


@pytest.mark.parametrize(
    "text",
    [
        '[tool.mlms.stacks.a]\ninterpreter = "current"\nenv = {A = "x\\u0000"}\n',
        '[tool.mlms.stacks.a]\ninterpreter = "\\u001b[2J"\n',
        '[tool.mlms.stacks.a]\nenv = {"\\u0007" = "x"}\ninterpreter = "current"\n',
    ],
)
def test_a_control_character_in_toml_is_an_error(tmp_path: Path, text: str) -> None:
    (error,) = errors_of(write(tmp_path, text, "pyproject.toml"))
    assert error.startswith("1: has the control character '\\x")


def test_a_toml_file_that_is_nested_without_end_is_an_error(tmp_path: Path) -> None:
    (error,) = errors_of(write(tmp_path, "a = " + "[" * 5000, "pyproject.toml"))
    assert error.startswith("1: can't be read: ")


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    os.mkfifo(path)
    assert errors_of(path) == ["1: can't be read: it is a device, a pipe or a socket"]


def test_each_shipped_stack_has_the_name_of_its_framework_and_requirements() -> None:
    stacks = load_stacks(ROOT / "manifests" / "stacks.yaml")
    for name, stack in stacks.items():
        assert name == stack.framework
        assert stack.requirements
    assert len(set(find_predictors()) & set(stacks)) >= 5


@pytest.mark.parametrize(
    ("text", "is_file"),
    [
        ("/jobs/a@2/torch-2.0-py3-none-any.whl", True),
        ("wheels/torch-2.0-py3-none-any.whl", True),
        ("torch @ ./torch-2.0-py3-none-any.whl", False),
        ("torch@./torch-2.0-py3-none-any.whl", False),
        ("torch[cpu]@/wheels/torch-2.0-py3-none-any.whl", False),
        ("torch@https://a.example/torch-2.0-py3-none-any.whl", False),
        ("job@2/torch-2.0-py3-none-any.whl", True),
        ("torch[a] @ file:///a/torch-2.0-py3-none-any.whl", False),
        ("git+https://u@example.org/a.whl", False),
    ],
)
def test_a_wheel_is_a_file_and_no_requirement_that_says_where_a_package_is(
    text: str, is_file: bool
) -> None:
    assert is_wheel(text) == is_file
