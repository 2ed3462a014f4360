"""A run that was stopped goes on by its JSON lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.support.project import PREDICTORS, Project

STOPS = """
import os, time, pytest

@pytest.mark.parametrize("n", range(6))
@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_n(mlms_case, n):
    open(f"ran/{n}-{os.getpid()}", "w").close()
    if n > 2 and not os.path.exists("go"):
        time.sleep(900)
"""


def cut(project: Project, keep: int) -> None:
    """Leave of the last run's lines what a kill would have left: some, and half of the next."""
    path = project.path / "mlms-results" / "latest" / "results.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: keep + 1]) + lines[keep + 1][:40])


def recorded(project: Project) -> bool:
    """Tell whether an item of the run that goes on is among its lines."""
    return any(
        '"type": "item"' in path.read_text()
        for path in project.path.glob("mlms-results/*/results.jsonl")
    )


@pytest.mark.parametrize("workers", [[], ["-n2"]])
def test_only_what_has_no_result_runs_and_the_run_becomes_whole(
    project: Project, workers: list[str]
) -> None:
    project.use_faulty()
    assert project.run().ret == 0
    first = project.items()
    cut(project, 1)
    result = project.run("--mlms-resume", *workers)
    assert result.ret == 0
    result.assert_outcomes(passed=1, deselected=0 if workers else 1)
    assert [item["nodeid"] for item in project.items()] == [item["nodeid"] for item in first]
    assert len({line["run"] for line in project.lines()}) == 1
    result.stdout.fnmatch_lines(
        ["PASSED*digits-cnn*faulty-cpu *", "PASSED*digits-cnn*faulty-cpu-b8-single_stream*"]
    )


def test_the_status_is_that_of_the_whole_run(project: Project) -> None:
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("scenarios: [single_stream, offline]", "scenarios: [single_stream]")
    project.set_thresholds("  top1: {min: 1}")
    assert project.run().ret == 1
    verdicts = {item["nodeid"]: item["verdict"] for item in project.items()}
    assert set(verdicts.values()) == {"FAILED", "PASSED"}
    assert project.run("--mlms-resume", "-k", "performance").ret == 1
    assert len(project.items()) == 2


def test_an_error_runs_again(project: Project) -> None:
    project.use_faulty(at="predict", fault="vanish")
    assert project.run("-k", "accuracy").ret == 1
    project.replace_file("digits_cnn.onnx", json.dumps({}).encode())
    assert project.run("-k", "accuracy", "--mlms-resume").ret == 0
    assert [item["verdict"] for item in project.items()] == ["ERROR", "PASSED"]


def test_a_run_that_is_not_there_is_named_with_those_that_are(project: Project) -> None:
    result = project.run("--mlms-resume=yesterday")
    assert result.ret == 4
    result.stderr.fnmatch_lines(
        ["ERROR: --mlms-resume: there are no results in *yesterday; name a run of *: none"]
    )


@pytest.mark.slow
def test_a_run_whose_controller_is_killed_leaves_no_process_and_goes_on(project: Project) -> None:
    project.use_faulty()
    project.pytester.makepyfile(test_stops=STOPS)
    (project.path / "ran").mkdir()
    arguments = [
        "--mlms-manifests=manifests",
        f"--mlms-predictors={PREDICTORS}",
        "-n2",
        "test_stops.py",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *arguments], stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 600
    while not (any(name[0] > "2" for name in os.listdir("ran")) and recorded(project)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=600)
    assert len(workers) >= 2
    assert not alive
    before = len(project.items())
    assert before >= 1  # those that were on their way back are lost with the controller
    (project.path / "go").touch()
    assert project.run("--mlms-resume", "-n2", "test_stops.py").ret == 0
    assert sorted(item["nodeid"][-2] for item in project.items()) == list("012345")
    assert len([name for name in os.listdir("ran") if name[0] < "3"]) <= 6 - before
