"""Tests of items whose agent fails: the item fails with the reason, and the next one runs."""

from __future__ import annotations

import fnmatch
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import Project

PLACE = "manifests/digits.yaml:10: digits-cnn *-cpu*: "
ENDED = "the agent (process *) ended while it did 'predict': "

MESSAGES = {
    "segv": f"{ENDED}killed by SIGSEGV; an error of the framework or its build: try another *",
    "killed": f"{ENDED}killed by SIGKILL, as the kernel does when memory runs out*",
    "memory": "'predict' raised *MemoryError: Unable to allocate 2.00 EiB for an array* (log: *)",
    "exit": "'predict' raised SystemExit: this framework gives up (log: *)",
    "garbage": "the agent (process *) can't exchange frames for 'predict': expected a frame, *",
}
HARMLESS = ("flood", "stdout")


def items_by_folder(project: Project) -> dict[str, dict[str, Any]]:
    items = {}
    for item in project.items():
        _, folder, *_ = item["nodeid"].split("/")
        items[folder] = item
    return items


def check_message(item: dict[str, Any], folder: str, pattern: str) -> None:
    message = item["message"].replace(f"manifests/{folder}/", "manifests/")
    assert fnmatch.filter(message.splitlines(), f"{PLACE}{pattern}"), message


def use_predictor(project: Project, name: str, code: str) -> str:
    """Add a predictor with this code for the manifest; return the option that names its folder."""
    folder = project.path / "predictors"
    folder.mkdir()
    (folder / f"{name}.py").write_text(code)
    project.use_faulty()
    project.edit("framework: faulty", f"framework: {name}")
    return f"--mlms-predictors={folder}"


@pytest.fixture
def failing(project: Project) -> Project:
    """A project with a manifest for each way in which an agent fails, and a sound one."""
    for fault in (*MESSAGES, *HARMLESS):
        project.fork(fault).use_faulty(at="predict", fault=fault)
    project.fork("fallback").use_faulty(device="cpu:1")
    project.fork("sound").use_faulty()
    project.drop()
    return project


def test_an_agent_that_fails_fails_its_item_alone(failing: Project) -> None:
    result = failing.run("-k", "accuracy")
    result.assert_outcomes(passed=3, failed=len(MESSAGES), errors=1)
    assert "Traceback" not in result.stdout.str()
    items = items_by_folder(failing)
    passed = [name for name, item in items.items() if item["verdict"] == "PASSED"]
    assert passed == ["flood", "sound", "stdout"]
    for fault, message in MESSAGES.items():
        check_message(items[fault], fault, message)
        for log in items[fault]["logs"]:
            assert (failing.results / log).exists()
    fell_back = "asked for cpu, faulty runs on cpu:1: it fell back silently; repair its *"
    check_message(items["fallback"], "fallback", fell_back)
    result.stdout.fnmatch_lines(["  its log, *mlms-results/*/agents/faulty-main-*.log, ends:"])
    result.stdout.fnmatch_lines(["*Segmentation fault*"])


def test_a_framework_that_is_not_installed_is_a_skip_that_says_where(project: Project) -> None:
    option = use_predictor(project, "absent", "import a_framework_that_nobody_has\n")
    result = project.run("-k", "accuracy", option, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED*absent can't be imported in stack here (*); install it there: *No module named*"]
    )


@pytest.mark.parametrize("stack", ["here", "other"])
def test_a_run_that_measures_nothing_for_a_predictors_import_fails_at_its_line(
    project: Project, tmp_path_factory: pytest.TempPathFactory, stack: str
) -> None:
    code = "import os\n\nimport nonexistent_thing.parts as parts\n"
    option = use_predictor(project, "broken", code)
    if stack == "other":
        stack = str(tmp_path_factory.mktemp("bin") / "python")
        Path(stack).write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        Path(stack).chmod(0o755)
    result = project.run("-k", "accuracy", option, f"--mlms-stack={stack}")
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    problem = "nothing was measured: no module 'nonexistent_thing'"
    advice = "correct the import, or install it in the stack"
    result.stdout.fnmatch_lines([f"mlms: *broken.py:3: {problem}; {advice}"])


def test_a_run_that_measures_nothing_for_a_name_that_a_module_lacks_fails_at_its_line(
    project: Project,
) -> None:
    code = "from numpy import array\n\nfrom numpy import arrray\n"
    result = project.run("-k", "accuracy", use_predictor(project, "broken", code))
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    problem = "nothing was measured: no 'arrray' in module 'numpy'"
    result.stdout.fnmatch_lines([f"mlms: *broken.py:3: {problem}; correct the import, or *"])


def test_an_agent_that_hangs_is_killed_after_the_timeout(project: Project) -> None:
    option = use_predictor(project, "asleep", "import time\ntime.sleep(600)\n")
    result = project.run("-k", "accuracy", "--mlms-timeout=1", option)
    result.assert_outcomes(errors=1)
    killed = "gave no reply to 'hello' in 1 s and was killed"
    result.stdout.fnmatch_lines([f"*{killed}; if it is only slow, raise --mlms-timeout"])


def test_processes_whose_outputs_differ_are_an_error(project: Project) -> None:
    project.use_faulty(fault="drift")
    result = project.run("-k", "performance", "--mlms-processes=2")
    result.assert_outcomes(failed=1)
    other = "process 2 computed another 'logits' than process 1 from the same inputs"
    result.stdout.fnmatch_lines([f"{PLACE}{other}, up to 5e+03 times what rounding explains; *"])


def test_a_performance_item_names_the_row_whose_output_is_not_finite(project: Project) -> None:
    project.use_faulty(fault="nan")
    result = project.run("-k", "performance")
    result.assert_outcomes(failed=1)
    row = "first for number 4, row * of manifests/digits.yaml:*: digits_test.npz; check *"
    result.stdout.fnmatch_lines([f"*'logits' has NaN or infinity for * of 8 inputs, {row}"])
