"""The interface for Python: its names are imported late and documented, and docs/api.md runs."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms import api, tasks
from pytest_mlms.core import errors
from tests.support.project import DIGITS, ROOT, Project, write_matrix
from tests.support.upgrade_results import RunFolder

PAGE = (ROOT / "docs" / "api.md").read_text()
OWN_TEST, USE, SCRIPT, HOOK, PREDICTOR = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LABELS = [str(label) for label in np.load(DIGITS / "digits_test.npz")["label"]]
ROWS = dict(re.findall(r"^\| `(\w+)(?:\([^|]*\))?` \| (.*) \|$", PAGE, re.MULTILINE))
IMPORTED = (
    "import sys, pytest_mlms.api; print(*[m for m in sys.modules if m.startswith('pytest_mlms')])"
)


@pytest.mark.parametrize("name", api.__all__)
def test_a_name_of_the_interface_exists_and_has_a_row_in_its_page(name: str) -> None:
    assert getattr(api, name) is not None
    assert name in ROWS


def test_every_error_for_users_is_documented() -> None:
    exported = {name for name in api.__all__ if name in vars(errors)}
    inside = {"Crashed", "InvalidRun", "untrusted"}  # of upgrades and measurements
    assert exported == set(errors.__all__) - inside


@pytest.mark.parametrize("name", tasks.__all__)
def test_a_name_for_tasks_is_in_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_types_that_checkers_see_are_those_that_are_imported() -> None:
    tree = ast.parse(Path(api.__file__).read_text())
    (block,) = [
        node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    ]
    seen = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            place = f"{statement.module}".removeprefix("pytest_mlms.")
            seen[alias.asname or alias.name] = place, alias.name
    found = {}
    for name in api.__all__:
        found[name] = api._MODULES.get(name, "core.errors"), api._NAMES.get(name, name)
    assert seen == found
    assert sorted(api.__all__) == api.__all__ == dir(api)


def test_the_interface_imports_nothing_until_a_name_is_used() -> None:
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert set(done.stdout.split()) == {"pytest_mlms", "pytest_mlms.api"}


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'pytest_mlms\.api' has no attribute 'Nothing'"):
        getattr(api, "Nothing")  # noqa: B009


def test_the_fixtures_of_the_page_have_the_types_that_it_says() -> None:
    tree = ast.parse((ROOT / "pytest_mlms" / "items" / "fixtures.py").read_text())
    returned = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in ROWS:
            assert node.returns is not None
            returned[node.name] = ast.unparse(node.returns)
    listed = {name: row for name, row in ROWS.items() if name.startswith("mlms_")}
    assert returned.keys() == listed.keys()
    for name, type_ in returned.items():
        stated = listed[name].replace("\\|", "|").split("`")[1]
        assert re.sub(r"^Iterator\[(.*)\]$", r"\1", type_) == stated


def test_the_test_of_the_page_passes_and_its_quantity_is_judged(project: Project) -> None:
    manifest = "manifests/digits.yaml"
    code = OWN_TEST.replace("../manifests/digits/digits.yaml", manifest)
    project.pytester.makepyfile(code)
    project.pytester.runpytest_subprocess().assert_outcomes(passed=1)
    (item,) = project.items()
    assert item["quantities"].keys() == {"faint"}
    assert [limit["verdict"] for limit in item["limits"]] == ["PASSED"]


@pytest.mark.slow
def test_the_test_of_the_page_is_right_for_a_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "test_own.py").write_text(OWN_TEST)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "test_own.py"]
    path = {**os.environ, "MYPYPATH": str(ROOT)}  # an editable installation is code, not a path
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=path)
    assert done.returncode == 0, done.stdout


def test_the_script_of_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "manifests").mkdir()
    shutil.copytree(DIGITS, tmp_path / "manifests" / "digits")
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert re.fullmatch(r"(9\d|100) of 100 right\n", done.stdout), done.stderr


def test_the_hook_of_the_page_writes_a_line_for_each_item_that_failed(project: Project) -> None:
    project.pytester.makeconftest(HOOK)
    project.set_thresholds("  top1: {min: 100 %}")
    project.run("-k", "accuracy").assert_outcomes(failed=1)
    (line,) = (project.path / "alerts.txt").read_text().splitlines()
    assert line.startswith("FAILED manifests/digits.yaml::test_accuracy[onnxruntime-cpu]: digits")


def test_the_framework_of_the_page_runs(project: Project) -> None:
    (project.path / "frameworks").mkdir()
    (project.path / "frameworks" / "linear.py").write_text(PREDICTOR)
    manifest = write_matrix(project.path)
    text = manifest.read_text().replace("framework: matrix", "framework: linear")
    manifest.write_text(text.replace(", options: {input: whole}", ""))
    result = project.run("--mlms-predictors=frameworks", "m.yaml")
    assert result.ret == 0
    assert {item["verdict"] for item in project.items()} == {"PASSED"}


def test_the_use_of_a_model_on_the_page_runs(tmp_path: Path) -> None:
    shutil.copytree(DIGITS, tmp_path / "manifests" / "digits")
    command = [sys.executable, "-c", USE]
    environment = {**os.environ, "MLMS_LOCKS": str(tmp_path / "locks")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    *labels, slowest, verdict = done.stdout.splitlines()
    assert [label.split()[0] for label in labels] == LABELS[:3], done.stderr
    assert slowest.startswith("slowest: ")
    assert verdict.endswith("::test_accuracy[onnxruntime-cpu] PASSED")


def test_results_are_read_and_judged_again_and_others_are_named(project: Project) -> None:
    project.set_thresholds("  top1: {min: 100 %}")
    project.pytester.makeini("[pytest]")
    (item,) = api.evaluate(project.manifest, "-k", "accuracy", results=project.path / "kept")
    assert item["verdict"] == "FAILED"
    run = (project.path / "kept" / "latest").resolve()
    assert api.read_results(run) == api.read_results(run / "results.jsonl") == [item]
    for call in (api.read_results, api.judge):
        with pytest.raises(api.MlmsError, match="name a run's folder, or its results.jsonl"):
            call(project.path / "none")
    with pytest.raises(api.MlmsError, match="there is no manifest none.yaml; name"):
        api.evaluate("none.yaml")
    with pytest.raises(api.MlmsError, match=r"(?s)pytest ended with status 4 .*unrecognized"):
        api.evaluate(project.manifest, "--no-such-option")


def test_a_run_that_was_cut_off_is_an_error_and_not_its_first_items(project: Project) -> None:
    project.pytester.makeini("[pytest]")
    project.pytester.makeconftest("import os\n\ndef pytest_unconfigure():\n    os._exit(3)\n")
    with pytest.raises(api.MlmsError, match=r"pytest ended with status 3 .*items: 1\b"):
        api.evaluate(project.manifest, "-k", "accuracy", results=project.path / "kept")


def test_upgrades_are_judged_again_with_another_tolerance(tmp_path: Path) -> None:
    RunFolder(tmp_path).write()
    assert [*api.judge(tmp_path).values()] == ["REGRESSED"]
    assert [*api.judge(tmp_path, 0.2).values()] == ["PASSED"]
    for wrong in (-0.5, 5.0, float("nan"), float("inf")):
        with pytest.raises(api.MlmsError, match="^tolerance: "):
            api.judge(tmp_path, wrong)
