"""Tests of runs that are killed, interrupted, or have no room for their results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.project import HANG_GUARD, PREDICTORS, QUICK, Project

MANY_PROCESSES = (
    "--mlms-manifests=manifests",
    f"--mlms-predictors={PREDICTORS}",
    *QUICK,
    "--mlms-processes=500",
    "--mlms-duration=1",
)


@pytest.fixture
def small(project: Project) -> Project:
    """The digits model itself, at one batch size and in one scenario."""
    project.edit("[1, 8, 64]", "[8]")
    project.edit("[single_stream, offline]", "[offline]")
    project.set_thresholds("  top1: {min: 0.95}")
    return project


def start(project: Project, *options: str) -> subprocess.Popen[str]:
    """Start a run that measures many processes."""
    command = [sys.executable, "-m", "pytest", *MANY_PROCESSES, *options]
    return subprocess.Popen(command, cwd=project.path, stdout=subprocess.PIPE, text=True)


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG_GUARD
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def samples_of(project: Project, process: int) -> list[Path]:
    """Return the files of samples that the items' process of this number has written."""
    folder = project.path / "mlms-results"
    return list(folder.glob(f"*/items/*performance*/samples-{process}.npz"))


def interrupt_in_mid_item(project: Project, *options: str) -> str:
    """Press Ctrl-C once an item has measured three processes; return what was printed."""
    project.use_faulty(seconds=0.02)
    with start(project, "-k", "performance", *options) as run:
        wait_until(lambda: bool(samples_of(project, 2)))
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=HANG_GUARD)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, output
    return output


def test_a_killed_run_keeps_what_was_measured(small: Project) -> None:
    with start(small) as run:
        wait_until(lambda: bool(samples_of(small, 0)))
        run.kill()
    assert [line["type"] for line in small.lines()] == ["run", "item"]
    assert small.items()[0]["verdict"] == "PASSED"
    assert samples_of(small, 0)


def test_an_interrupted_item_is_written_as_far_as_it_came(project: Project) -> None:
    output = interrupt_in_mid_item(project, "--mlms-report=report.html")
    assert "interrupted before it was done" in (project.path / "report.html").read_text()
    (item,) = project.items()
    assert (item["verdict"], item["outcome"]) == ("ERROR", "interrupted")
    assert len(item["processes"]) >= 2
    assert "measured until then: samples-0.npz, samples-1.npz" in item["message"]
    assert "mlms: results in" in output
    assert project.lines()[-1]["type"] == "end"


@pytest.mark.slow
def test_with_xdist_an_interrupted_item_is_written_with_its_samples(project: Project) -> None:
    interrupt_in_mid_item(project, "-n", "1")
    (item,) = project.items()
    assert (item["verdict"], item["outcome"]) == ("ERROR", "interrupted")
    assert (project.results / item["artifacts"]["samples-1.npz"]).exists()


IN_AN_IMPORT = """
import sys

def pytest_runtest_setup(item):
    sys.modules["numpy"] = None  # as it refuses to be imported again
    raise KeyboardInterrupt
"""


def test_ctrl_c_in_the_first_import_of_numpy_is_no_internal_error(small: Project) -> None:
    small.pytester.makeconftest(IN_AN_IMPORT)
    result = small.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "INTERNALERROR" not in result.stdout.str()


OCCUPY_RESULTS = """
import shutil
import pytest

@pytest.hookimpl(trylast=True)
def pytest_collection_finish():  # after the folder was tried
    shutil.rmtree("results", ignore_errors=True)
    with open("results", "w") as file:
        file.write("a file where the folder should be")
"""


def test_results_that_can_not_be_written_are_printed_and_fail_the_run(small: Project) -> None:
    small.pytester.makeconftest(OCCUPY_RESULTS)
    busy_machine = "-Wignore::pytest_mlms.warning_types.MlmsContention"  # may warn of that, too
    result = small.run("--mlms-results=results", "--mlms-benchmark-json=bench.json", busy_machine)
    result.assert_outcomes(passed=2, warnings=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "  manifests/digits.yaml:9: MlmsArtifactLost: *: *probabilities.npz could not be *",
            '{"format": 1,*"type": "item"*"top1"*',
            "mlms: --mlms-benchmark-json: without *test_performance*, whose samples are not on *",
            "mlms: *results.jsonl: *; 4 lines were not written",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert "mlms: results in" not in result.stdout.str()
    assert json.loads((small.path / "bench.json").read_text())["benchmarks"] == []


def test_a_benchmark_document_that_can_not_be_written_fails_the_run(small: Project) -> None:
    (small.path / "removed").mkdir()
    small.pytester.makeconftest("def pytest_mlms_result(result): __import__('os').rmdir('removed')")
    result = small.run("-k", "performance", "--mlms-benchmark-json=removed/x.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["mlms: --mlms-benchmark-json: *removed/x.json can't be written*"])
