"""Quantities of users' own tests, and the limits on them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.project import ROOT, Project, sha256, write_matrix

QUANTITY = """
import pytest

@pytest.mark.mlms(manifest="m.yaml")
def test_rmse(mlms_case, mlms_recorder):
    mlms_recorder.quantity("rmse", 0.125, unit="lux", better="lower")
    mlms_recorder.quantity("delay", 0.0025, unit="s", better="lower")
"""


def test_a_quantity_of_ones_own_is_in_the_table_the_results_and_junit(project: Project) -> None:
    write_matrix(project.path)
    project.pytester.makepyfile(test_own=QUANTITY)
    result = project.run("test_own.py", "--junitxml=x.xml")
    result.stdout.fnmatch_lines(
        [
            "*mlms: quantities of own tests, worst verdicts first*",
            "verdict  model   case        test            rmse    delay",
            "PASSED   matrix  matrix-cpu  test_rmse  0.125 lux  2.50 ms",
            "mlms: 1 model: 1 passed; 1 measured, 0 not gated",
        ]
    )
    (item,) = project.items()
    assert item["quantities"]["rmse"] == {"value": 0.125, "unit": "lux", "better": "lower"}
    assert 'name="mlms_value_of_rmse" value="0.125"' in (project.path / "x.xml").read_text()


LIMITS = """
import pytest

@pytest.mark.mlms(manifest="m.yaml")
def test_own(mlms_recorder):
    mlms_recorder.quantity("rmse", {rmse}, unit="m", better="lower", limit=0.1)
    mlms_recorder.quantity("recall", 0.9, better="higher", limit=0.8)
"""


UNDECIDED = (
    "rmse is not shown to be at most 0.100 m: measured 0.100 m, "
    "interval 0.0752 m to 0.125 m (95 % confidence, 3 values); "
    "undecided: the limit is inside the interval; more values narrow it"
)


def run_limits(project: Project, rmse: str, *options: str) -> pytest.RunResult:
    """Run a test that limits what it measured."""
    write_matrix(project.path)
    project.pytester.makepyfile(test_own=LIMITS.format(rmse=rmse))
    return project.run("test_own.py", *options)


def test_a_limit_that_holds_passes_and_is_in_the_results(project: Project) -> None:
    run_limits(project, "0.05").assert_outcomes(passed=1)
    (item,) = project.items()
    assert (item["verdict"], item["margin"]) == ("PASSED", pytest.approx(0.125))
    rmse, recall = item["limits"]
    place = "test_own.py:5"
    assert rmse == {"quantity": "rmse", "max": 0.1, "place": place, "verdict": "PASSED"}
    assert recall["min"] == 0.8


def test_each_limit_of_a_quantity_that_is_recorded_again_is_judged(project: Project) -> None:
    write_matrix(project.path)
    twice = LIMITS.format(rmse=0.5) + LIMITS.format(rmse=0.05).splitlines()[-2] + "\n"
    project.pytester.makepyfile(test_own=twice)
    project.run("test_own.py").assert_outcomes(failed=1)
    (item,) = project.items()
    assert [limit["verdict"] for limit in item["limits"]] == ["FAILED", "PASSED", "PASSED"]
    assert item["quantities"]["rmse"]["value"] == 0.05


def test_a_broken_limit_fails_the_test_and_hides_no_other_quantity(project: Project) -> None:
    result = run_limits(project, "0.125", "--junitxml=x.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "matrix matrix-cpu: rmse is not at most 0.100 m: measured 0.125 m",
            "  limit set by test_own.py:5",
            "reproduce: pytest *'test_own.py::test_own[[]matrix-cpu[]]'",
            "FAILED   matrix  matrix-cpu  test_own  0.125 m   0.900",
            "FAILED test_own.py::test_own*rmse 0.125 m, limit at most 0.100 m",
        ]
    )
    (item,) = project.items()
    assert item["verdict"] == "FAILED"
    assert set(item["quantities"]) == {"rmse", "recall"}
    assert "rmse is not at most" in (project.path / "x.xml").read_text()


def test_a_limit_inside_the_interval_of_several_values_is_undecided(project: Project) -> None:
    result = run_limits(project, "[0.09, 0.1, 0.11]", "--junitxml=x.xml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "INCONCLUSIVE  matrix  matrix-cpu  test_own  0.100 m ±25 %   0.900",
            f"  test_own.py:5: MlmsInconclusive: matrix matrix-cpu: {UNDECIDED}",
            "*1 undecided*",
        ]
    )
    (item,) = project.items()
    assert item["quantities"]["rmse"]["low"] == pytest.approx(0.0752, rel=1e-3)
    assert item["quantities"]["rmse"]["replicates"] == 3
    assert 'name="mlms_value_of_rmse_high"' in (project.path / "x.xml").read_text()
    run = project.results.resolve().name
    resumed = project.run(f"--mlms-resume={run}", "test_own.py", "--mlms-strict")
    assert resumed.ret == 1, "an item that an earlier session left undecided"
    result = run_limits(project, "[0.09, 0.1, 0.11]", "--mlms-strict")
    result.assert_outcomes(failed=1)


def test_a_test_that_fails_by_itself_keeps_its_quantities(project: Project) -> None:
    write_matrix(project.path)
    test = LIMITS.format(rmse="0.125") + "    assert 1 == 2"
    project.pytester.makepyfile(test_own=test)
    result = project.run("test_own.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2*"])
    (item,) = project.items()
    assert item["quantities"]["rmse"]["value"] == 0.125
    assert "limits" not in item


def documented_test() -> str:
    page = (ROOT / "docs" / "quantities.md").read_text()
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


DATASET = """\
dataset: {{name: points, version: 1.0.0, source: points.npz, sha256: {digest}}}
"""


def test_the_documented_example_works(project: Project) -> None:
    manifest = write_matrix(project.path)
    points = project.path / "points.npz"
    np.savez(points, x=np.ones((4, 3), np.float32))
    digest = sha256(points.read_bytes())
    manifest.write_text(manifest.read_text() + DATASET.format(digest=digest))
    project.pytester.makepyfile(test_own=documented_test())
    result = project.run("test_own.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "matrix matrix-cpu: rmse is not at most 0.200 m: measured 1.00 m",
            "error is not at most 0.100 m: measured 1.00 m, interval * (95 % confidence, 4 values)",
        ]
    )
