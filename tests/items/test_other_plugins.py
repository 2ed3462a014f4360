"""Items of manifests beside plugins that run items again, or select benchmarks.

The extra ``test`` has no plugin that runs tests again, since those don't work over ssh: CI installs
them for these tests alone.
"""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.support.project import Project

FAILS_ONCE = """
import pathlib, pytest

@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_own(mlms_case, mlms_recorder):
    mlms_recorder.keep("note.txt", lambda path: path.write_text("measured"))
    mark = pathlib.Path("ran")
    if not mark.exists():
        mark.touch()
        pytest.fail("the first time")
"""


SUBTESTS = """
import pytest

@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_own(subtests, mlms_case, mlms_recorder):
    with subtests.test("right"):
        pass
    with subtests.test("wrong"):
        assert mlms_case.batch_size == "none"
    {end}
"""


CRASHES = """
import os

def test_crash():
    os._exit(1)
"""


def rows(result: pytest.RunResult) -> list[str]:
    """Return the rows of tables, without their measured values."""
    return [line[:60] for line in result.outlines if line.startswith(("PASSED ", "no limit "))]


@pytest.mark.parametrize("end", ["pass", "pytest.skip('late')", "mlms_case.nowhere"])
def test_an_item_with_a_failed_subtest_has_one_line_which_failed(
    project: Project, pytestconfig: pytest.Config, end: str
) -> None:
    if not pytestconfig.pluginmanager.hasplugin("subtests"):
        pytest.importorskip("pytest_subtests")
    project.pytester.makepyfile(test_own=SUBTESTS.format(end=end))
    assert project.run("test_own.py").ret == 1
    (item,) = project.items()
    is_error = end == "mlms_case.nowhere"
    assert (item["verdict"], item["outcome"]) == ("ERROR" if is_error else "FAILED", "failed")
    assert ("'none'" in item["message"]) is not is_error


def test_an_item_that_is_run_again_is_marked_and_shown_once(project: Project) -> None:
    pytest.importorskip("pytest_rerunfailures")
    project.use_faulty()
    project.pytester.makepyfile(test_own=FAILS_ONCE)
    project.run("test_own.py", "--reruns=1", "--junitxml=x.xml").assert_outcomes(passed=1)
    first, second = project.items()
    assert (first["verdict"], second["verdict"]) == ("FAILED", "PASSED")
    assert "repetition" not in first
    assert second["repetition"] == 2
    assert first["artifacts"] != second["artifacts"]
    assert first["nodeid"] == second["nodeid"]
    for case in ElementTree.parse(project.path / "x.xml").iter("testcase"):
        names = [entry.get("name") for entry in case.iter("property")]
        assert len(names) == len(set(names))


def test_a_crash_is_reported_beside_rerunfailures(project: Project) -> None:
    pytest.importorskip("pytest_rerunfailures")
    project.use_faulty()
    project.pytester.makepyfile(test_crash=CRASHES)
    result = project.run("test_crash.py", "manifests", "-n", "1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "INTERNALERROR" not in result.stdout.str()


def test_repetitions_are_numbered_in_tables_and_results(project: Project) -> None:
    pytest.importorskip("pytest_repeat")
    project.use_faulty()
    result = project.run("-k", "accuracy", "--count=3")
    result.assert_outcomes(passed=3)
    assert [item.get("repetition", 1) for item in project.items()] == [1, 2, 3]
    shown = " ".join(rows(result))
    assert "faulty-cpu #2" in shown
    assert "faulty-cpu #3" in shown


@pytest.mark.parametrize(("option", "kind"), [("only", "performance"), ("skip", "accuracy")])
def test_options_of_pytest_benchmark_select_the_timed_items(
    project: Project, monkeypatch: pytest.MonkeyPatch, option: str, kind: str
) -> None:
    pytest.importorskip("pytest_benchmark")
    # In a worker of xdist, pytest-benchmark would refuse --benchmark-only.
    for variable in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(variable, raising=False)
    project.use_faulty()
    result = project.run(f"--benchmark-{option}")
    result.assert_outcomes(passed=1, deselected=1)
    assert [item["kind"] for item in project.items()] == [kind]
