"""The example agent in C++: built without an official header, held against Python's predictor."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from pytest_mlms.cli.main import main
from pytest_mlms.core.records import Stack
from pytest_mlms.measure.agent.process import Agent, Refused, start_agent
from pytest_mlms.provide.stacks.launch import prepare
from tests.support.project import DIGITS, ROOT, Project

pytestmark = pytest.mark.slow

SOURCES = ROOT / "docs" / "agents"
LIBRARIES = sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
GRAPH = DIGITS / "digits_cnn.onnx"
SECONDS = 300


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent, built with all warnings as errors."""
    if shutil.which("g++") is None or not LIBRARIES:
        pytest.skip("there is no g++, or the wheel has no library of its own")
    path = tmp_path_factory.mktemp("built") / "agent"
    command = ["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-I.", "agent.cpp"]
    done = subprocess.run(
        [*command, "-o", str(path), "-ldl"], cwd=SOURCES, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def agent(program: Path, tmp_path: Path) -> Iterator[Agent]:
    """The agent, with the digits network loaded."""
    stack = Stack("cpp", "onnxruntime", agent=(str(program), str(LIBRARIES[0])))
    agent = start_agent(prepare(stack, tmp_path), Path(), tmp_path / "log", SECONDS)
    facts = agent.request("hello").facts
    assert facts["versions"] == {"onnxruntime": onnxruntime.__version__}
    load = {"files": {"graph": str(GRAPH)}, "device": "cpu", "threads": 1, "options": {}}
    agent.request("load", load)
    yield agent
    agent.close()


def images(count: int) -> NDArray[np.float32]:
    found = np.load(DIGITS / "digits_test.npz")["image"]
    return np.asarray(found[:count, None].astype(np.float32) / 16)


def test_it_meets_all_requirements(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "check", str(program), str(LIBRARIES[0])]) == 0, capsys.readouterr().out
    assert "0 failed, 0 not checked" in capsys.readouterr().out


@pytest.mark.parametrize("count", [1, 8, 64])
def test_its_outputs_are_those_of_python_to_the_last_bit(agent: Agent, count: int) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(GRAPH), options, ["CPUExecutionProvider"])
    batch = images(count)
    found = agent.request("predict", arrays=[("image", batch)]).arrays
    for tensor, expected in zip(
        session.get_outputs(), session.run(None, {"image": batch}), strict=True
    ):
        assert found[tensor.name].tobytes() == expected.tobytes()


def test_a_library_that_is_none_says_so_as_an_import(program: Path, tmp_path: Path) -> None:
    stack = Stack("cpp", "onnxruntime", agent=(str(program), str(tmp_path / "nowhere.so")))
    agent = start_agent(prepare(stack, tmp_path), Path(), tmp_path / "log", SECONDS)
    with pytest.raises(Refused, match="ImportError: .*nowhere.so: cannot open"):
        agent.request("hello")
    agent.close()


def test_an_upgrade_and_items_run_with_it(program: Path, project: Project) -> None:
    command = [str(program), str(LIBRARIES[0])]
    (project.folder / "stacks.yaml").write_text(
        f"cpp: {{framework: onnxruntime, agent: {{command: {command}}}}}\n"
    )
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("[single_stream, offline]", "[single_stream]")
    project.set_thresholds("  top1: {min: 90 %}\n  upgrade: {tolerance: 100 %}")
    project.run("--mlms-stack=cpp", "-k", "accuracy or performance").assert_outcomes(passed=2)
    result = project.run("--mlms-stack=cpp", "--mlms-against=here", "-k", "upgrade")
    result.assert_outcomes(passed=1)
    result = project.run("--mlms-stack=cpp", "--mlms-trace=layer", "-k", "trace", "-rs")
    result.stdout.fnmatch_lines(["*doesn't answer trace, which trace needs*"])
