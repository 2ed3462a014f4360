"""Tests of runs that are resumed after they were stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from tests.support.project import HANG_GUARD, PREDICTORS, Project

STOPS = """
import os, time, pytest

@pytest.mark.parametrize("n", range(6))
@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_n(mlms_case, n):
    open(f"ran/{n}-{os.getpid()}", "w").close()
    if n > 2 and not os.path.exists("go"):
        time.sleep(900)
"""


def nodeids(project: Project) -> list[str]:
    return [item["nodeid"] for item in project.items()]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG_GUARD
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "xdist"])
def test_only_items_without_a_result_run_and_the_run_becomes_whole(
    project: Project, workers: list[str]
) -> None:
    project.use_faulty()
    assert project.run().ret == 0
    all_items = nodeids(project)
    project.cut_off(1)
    result = project.run("--mlms-resume", *workers)
    assert result.ret == 0
    result.assert_outcomes(passed=1, deselected=0 if workers else 1)
    assert nodeids(project) == all_items
    assert len({line["run"] for line in project.lines()}) == 1
    result.stdout.fnmatch_lines(
        ["no limit*digits-cnn*faulty-cpu *", "no limit*digits-cnn*faulty-cpu-b8-single_stream*"]
    )


def test_the_exit_status_is_that_of_the_whole_run(project: Project) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("scenarios: [single_stream, offline]", "scenarios: [single_stream]")
    project.set_thresholds("  top1: {min: 1}")
    assert project.run().ret == 1
    assert {item["verdict"] for item in project.items()} == {"FAILED", "PASSED"}
    assert project.run("--mlms-resume", "-k", "performance").ret == 1
    assert len(project.items()) == 2


def test_an_item_with_an_error_runs_again(project: Project) -> None:
    project.use_faulty(at="predict", fault="vanish")
    assert project.run("-k", "accuracy").ret == 1
    project.replace_file("digits_cnn.onnx", json.dumps({}).encode())
    assert project.run("-k", "accuracy", "--mlms-resume").ret == 0
    assert [item["verdict"] for item in project.items()] == ["ERROR", "PASSED"]


def test_a_run_that_does_not_exist_is_named_with_those_that_do(project: Project) -> None:
    result = project.run("--mlms-resume=yesterday")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --mlms-resume: there are no results in *yesterday; name a run of *: none"]
    )


def started_items(project: Project) -> list[str]:
    """Return the number of each item that was started, once for each time."""
    return sorted(path.name[0] for path in (project.path / "ran").iterdir())


def has_result_and_waits(project: Project) -> bool:
    """Return whether an item has a result, and another one waits for its end."""
    waits = any(number > "2" for number in started_items(project))
    files = (project.path / "mlms-results").glob("*/results.jsonl")
    texts = [file.read_text() for file in files]
    return waits and any('"type": "item"' in text for text in texts)


@pytest.mark.slow
def test_a_run_whose_controller_is_killed_leaves_no_process_and_is_resumed(
    project: Project,
) -> None:
    project.use_faulty()
    project.pytester.makepyfile(test_stops=STOPS)
    (project.path / "ran").mkdir()
    options = ["--mlms-manifests=manifests", f"--mlms-predictors={PREDICTORS}"]
    command = [sys.executable, "-m", "pytest", *options, "-n2", "test_stops.py"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_until(lambda: has_result_and_waits(project))
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=HANG_GUARD)
    assert len(workers) >= 2
    assert not alive
    finished = len(project.items())  # results that were on their way are lost
    assert finished >= 1
    (project.path / "go").touch()
    assert project.run("--mlms-resume", "-n2", "test_stops.py").ret == 0
    numbers = sorted(nodeid[-2] for nodeid in nodeids(project))
    assert numbers == list("012345")
    early = [number for number in started_items(project) if number < "3"]
    assert len(early) <= 6 - finished
