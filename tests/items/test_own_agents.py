"""Items with an agent that is a program of its own, here our worker started as one."""

from __future__ import annotations

import json
import sys

import pytest

from pytest_mlms.measure.agent.process import WORKER
from tests.support.project import Project

COMMAND = [sys.executable, str(WORKER), str(WORKER.parent.parent / "onnxruntime.py")]
STACKS = {
    "own": {"framework": "onnxruntime", "agent": {"command": COMMAND}},
    "gone": {"framework": "onnxruntime", "agent": {"command": ["./gone"]}},
    "absent": {"framework": "onnxruntime", "agent": {"command": ["mlms-nowhere"]}},
}


@pytest.fixture
def own(project: Project) -> Project:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("[single_stream, offline]", "[single_stream]")
    project.set_thresholds("  top1: {min: 90 %}\n  upgrade: {tolerance: 100 %}")
    (project.folder / "stacks.yaml").write_text(json.dumps(STACKS))
    return project


def test_accuracy_and_performance_are_measured(own: Project) -> None:
    own.run("--mlms-stack=own", "-k", "accuracy or performance").assert_outcomes(passed=2)
    for item in own.items():
        assert item["stack"]["declared"]["agent"] == {"command": COMMAND}
        assert item["launch"]["command"] == COMMAND
        names = [line.split(" @ sha256=")[0] for line in item["launch"]["lock"]]
        assert names[1:] == ["program worker.py", "program onnxruntime.py"]


def test_an_upgrade_is_judged_against_the_interpreter_of_pytest(own: Project) -> None:
    result = own.run("--mlms-stack=own", "--mlms-against=here", "-k", "upgrade")
    result.assert_outcomes(passed=1)
    (item,) = own.items()
    assert item["case"] == "own-vs-onnxruntime-cpu-b8"


def test_a_stack_without_its_program_is_an_error_or_skipped(own: Project) -> None:
    result = own.run("--mlms-stack=gone", "-k", "accuracy")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*stacks.yaml:1: stack gone: there is no program*"])
    result = own.run("--mlms-stack=absent", "-k", "accuracy", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*its agent, mlms-nowhere, is not on PATH*"])
