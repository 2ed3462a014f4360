"""Tests of the facts of tasks, and of a task that another package adds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_mlms.core.quantities import QUANTITIES, quantities_of
from pytest_mlms.core.tasks import TASKS, facts_of
from pytest_mlms.measure.evaluate.scoring import task_named
from pytest_mlms.measure.evaluate.tasks.task import Task
from tests.support.project import ROOT, Project


@pytest.mark.parametrize("name", TASKS)
def test_the_class_of_a_task_is_where_its_facts_say_and_repeats_none_of_them(name: str) -> None:
    task = task_named(name)
    assert isinstance(task, Task)
    assert not any(hasattr(task, fact) for fact in ("labels", "output_types", "quantities"))


def test_every_quantity_of_accuracy_is_one_of_a_task() -> None:
    measured = {name for facts in TASKS.values() for name in facts.quantities}
    assert measured == {quantity.name for quantity in quantities_of("accuracy")}


@pytest.mark.parametrize("name", TASKS)
def test_the_documents_have_a_row_for_every_task(name: str) -> None:
    lines = (ROOT / "docs" / "tasks.md").read_text().splitlines()
    (row,) = [line for line in lines if line.startswith("| `") and f"`{name}`" in line]
    _, _, labels, outputs, quantities, _ = row.split("|")
    facts = TASKS[name]
    assert labels.strip() == facts.labels
    assert set(re.findall(r"`([a-z_]+)`", outputs)) == set(facts.output_types)
    assert tuple(re.findall(r"`([a-z0-9_]+)`", quantities)) == facts.quantities


def test_an_unknown_task_is_a_classification() -> None:
    assert facts_of("wine-tasting") == TASKS["image-classification"]
    assert "top1" in QUANTITIES


def install(folder: Path, code: str, entry: str) -> None:
    """Write a package that has a task by an entry point."""
    (folder / "counting.py").write_text(code)
    metadata = folder / "counting-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[pytest_mlms.tasks]\ncounting = {entry}\n")


@pytest.fixture
def counting(project: Project) -> Project:
    """The digits as things that are counted, and the folder of a package on the path."""
    project.edit("task: image-classification", "task: counting")
    project.edit("type: classification", "type: tensor")
    project.edit("[softmax, {top_k: {k: 5, labels: labels.txt}}]", "[]")
    project.edit("[1, 8, 64]", "[64]")
    project.pytester.syspathinsert(project.path)
    return project


def example() -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    _, _, section = text.partition("\n## Add a task\n")
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found
    return found[1]


@pytest.mark.slow
def test_the_task_of_another_package_is_measured_limited_and_shown(counting: Project) -> None:
    install(counting.path, example(), "counting:Counting")
    counting.set_thresholds("  within_one: {min: 99 %}\n  bias: {max: 1000}")
    result = counting.run("-k", "accuracy", "--junitxml=junit.xml")
    result.assert_outcomes(failed=1)
    (item,) = counting.items()
    assert set(item["estimates"]) == {"within_one", "bias"}
    assert item["estimates"]["bias"]["low"] < item["estimates"]["bias"]["high"]
    verdicts = {limit["quantity"]: limit["verdict"] for limit in item["limits"]}
    assert verdicts == {"within_one": "FAILED", "bias": "PASSED"}
    result.stdout.fnmatch_lines(
        ["*within_one is not at least 99.00 %*", "*  row *: label *, count *"]
    )
    assert "mlms_bias_high" in (counting.path / "junit.xml").read_text()


def test_a_task_that_can_not_be_imported_is_an_error_of_its_manifests(counting: Project) -> None:
    install(counting.path, "import not_there", "counting:Counting")
    lint = [sys.executable, "-m", "pytest_mlms", "lint", str(counting.manifest)]
    path = {**os.environ, "PYTHONPATH": str(counting.path)}
    done = subprocess.run(lint, env=path, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    place, _, error = done.stdout.splitlines()[0].partition(": ")
    assert place.endswith("digits.yaml:3")
    assert error.startswith("task 'counting': counting:Counting can't be used: ModuleNotFoundErr")
    assert error.endswith("'not_there'; mend or uninstall its package")
