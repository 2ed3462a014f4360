"""Files that tests leave on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.project import ROOT

CONFTEST = f"""\
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.conftest import pytest_runtest_makereport, pytester, shared_runs
pytest_plugins = ["pytester"]
"""

TESTS = """\
import pathlib
from types import SimpleNamespace

def note(pytester):
    with open(pathlib.Path(__file__).parent / "folders", "a") as file:
        print(pytester.path, file=file)

def test_that_passes(pytester):
    note(pytester)

def test_that_fails(pytester):
    note(pytester)
    assert False
"""

SHARING = """\
from test_one import SimpleNamespace, note

def run(project):
    (project.path / "result").write_text("1")

def use(pytester, shared_runs):
    note(pytester)
    ran = shared_runs.of(run, SimpleNamespace(path=pytester.path))
    assert (ran.project.path / "result").exists()

def test_that_makes_a_run(pytester, shared_runs):
    use(pytester, shared_runs)

def test_that_reads_it(pytester, shared_runs):
    use(pytester, shared_runs)
"""


def left(pytester: pytest.Pytester) -> list[bool]:
    """Return whether the folder of each of the tests is there after them."""
    folders = (pytester.path / "folders").read_text().splitlines()
    return [Path(folder).exists() for folder in folders]


def test_folders_of_pytester_stay_where_a_test_failed(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_one=TESTS)
    pytester.runpytest_subprocess("test_one.py").assert_outcomes(passed=1, failed=1)
    assert left(pytester) == [False, True]


def test_folders_of_runs_that_tests_share_stay_until_the_last_of_these(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_one=TESTS, test_two=SHARING)
    pytester.runpytest_subprocess("test_two.py").assert_outcomes(passed=2)
    assert left(pytester) == [False, False]
