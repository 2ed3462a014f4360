"""Tests of runs that are resumed after they were stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from pytest_mlms.items.resume import finished_items
from pytest_mlms.keep.results.results_reader import read_results
from pytest_mlms.show.report.results import ResultsFile
from pytest_mlms.show.report.run_folders import RunLock
from tests.support.histories import write_run
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


def test_an_item_runs_again_whose_limit_was_tightened(project: Project) -> None:
    project.use_faulty()
    project.set_thresholds("  latency_p50: {max: 60 s}")
    assert project.run().ret == 0
    project.cut_off(1)
    project.set_thresholds("  latency_p50: {max: 1 ns}")
    result = project.run("--mlms-resume")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["mlms: resumed: 0 earlier results kept, 1 item ran again: *"])


def test_an_item_runs_again_under_other_options_and_a_mended_one_passes(project: Project) -> None:
    project.use_faulty()
    project.set_thresholds("  latency_p50: {max: 1 ns}")
    assert project.run("-k", "performance").ret == 1
    kept = project.run("-k", "performance", "--mlms-resume")
    kept.assert_outcomes(deselected=2)
    assert kept.ret == 1
    longer = project.run("-k", "performance", "--mlms-resume", "--mlms-duration=0.02")
    longer.assert_outcomes(failed=1, deselected=1)
    project.set_thresholds("  latency_p50: {max: 60 s}")
    assert project.run("-k", "performance", "--mlms-resume", "--mlms-duration=0.02").ret == 0


def test_an_item_of_this_interpreter_runs_again_where_a_package_changed(project: Project) -> None:
    project.use_faulty()
    assert project.run("-k", "accuracy").ret == 0
    without_end(project, f"pytest=={pytest.__version__}", "pytest==8.0.0")
    project.run("-k", "accuracy", "--mlms-resume").assert_outcomes(passed=1, deselected=1)


def test_an_upgrade_runs_again_where_a_package_of_its_baseline_here_changed(
    project: Project,
) -> None:
    project.use_faulty()
    upgrade = ["-k", "upgrade", "--mlms-stack=here+KMP_BLOCKTIME=1", "--mlms-against=here"]
    assert project.run(*upgrade).ret == 0
    now = f"pytest=={pytest.__version__}"
    path = project.results / "results.jsonl"
    before, key, after = path.read_text().partition('"launch_against"')
    assert now in after
    path.write_text(f"{before}{key}{after.replace(now, 'pytest==8.0.0', 1)}")
    without_end(project)
    project.run(*upgrade, "--mlms-resume", "--collect-only").stdout.fnmatch_lines(
        ["*1 test collected*"]
    )


@pytest.mark.parametrize(
    ("changed", "workers"),
    [("variables", []), ("variables", ["-n1"]), ("labels", [])],
    ids=["variables", "variables-xdist", "labels"],
)
def test_an_item_runs_again_whose_variables_or_files_of_steps_have_changed(
    project: Project, monkeypatch: pytest.MonkeyPatch, changed: str, workers: list[str]
) -> None:
    project.use_faulty()
    assert project.run("-k", "accuracy").ret == 0
    without_end(project)
    if changed == "variables":
        monkeypatch.setenv("KMP_BLOCKTIME", "0")
    else:
        (project.folder / "labels.txt").write_text("digit\n" * 10)
    result = project.run("-k", "accuracy", "--mlms-resume", *workers)
    result.assert_outcomes(passed=1, deselected=0 if workers else 1)


def without_end(project: Project, old: str = "", new: str = "") -> None:
    """Leave what a kill leaves of the last run, with a part of it replaced."""
    path = project.results / "results.jsonl"
    path.write_text(path.read_text().replace(old, new).partition('"type": "end"')[0])


def test_a_resumed_run_fails_by_errors_of_items_that_were_not_asked_for(project: Project) -> None:
    project.use_faulty()
    assert project.run("-k", "accuracy").ret == 0
    without_end(project, '"verdict": "PASSED"', '"verdict": "ERROR"')
    result = project.run("-k", "performance", "--mlms-resume")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["mlms: resumed: *, 1 with an error or interrupted did not run *"])
    result.stdout.fnmatch_lines(["mlms: 1 model: 1 with errors, 1 passed; *"])


@pytest.mark.parametrize("lacks", ["a limit", "its hardware"])
def test_an_item_runs_again_that_strict_fails_and_did_not_when_it_ran(
    project: Project, lacks: str
) -> None:
    project.use_faulty()
    if lacks != "a limit":
        project.set_thresholds("  top1: {min: 0.01}\nhardware: {memory: '>= 900000 GiB'}")
    assert project.run("-k", "accuracy").ret == 0
    without_end(project)
    result = project.run("-k", "accuracy", "--mlms-resume", "--mlms-strict")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["mlms: resumed: 0 earlier results kept, 1 item ran again: *"])


@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["alone", "xdist"])
def test_a_skipped_item_runs_again_as_its_reason_may_be_gone(
    project: Project, workers: list[str]
) -> None:
    project.use_faulty()
    project.set_thresholds("  top1: {min: 0.01}\nhardware: {memory: '>= 900000 GiB'}")
    project.run("-k", "accuracy")
    assert [item["verdict"] for item in project.items()] == ["SKIPPED"]
    without_end(project)
    result = project.run("-k", "accuracy", "--mlms-resume", "-rs", *workers)
    result.assert_outcomes(skipped=1, deselected=0 if workers else 1)
    result.stdout.fnmatch_lines(["mlms: resumed: 0 earlier results kept, 1 item ran again: *skip*"])
    assert [item["verdict"] for item in project.items()] == ["SKIPPED", "SKIPPED"]


@pytest.mark.slow
def test_an_upgrade_runs_again_where_its_baseline_would_get_other_variables(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.use_faulty()
    upgrade = ["-k", "upgrade", "--mlms-stack=here+KMP_BLOCKTIME=1", "--mlms-against=here"]
    assert project.run(*upgrade).ret == 0
    without_end(project)
    monkeypatch.setenv("KMP_BLOCKTIME", "0")
    result = project.run(*upgrade, "--mlms-resume", "--collect-only")
    result.stdout.fnmatch_lines(["*1 test collected*"])


def test_an_interrupted_item_is_not_finished_whatever_it_measured(tmp_path: Path) -> None:
    write_run(tmp_path, 0, outcome="interrupted")
    write_run(tmp_path, 1, outcome="passed")
    found = [len(finished_items(folder)) for folder in sorted(tmp_path.iterdir())]
    assert found == [0, 1]


def test_a_run_that_passed_is_not_resumed_in_place_of_one_without_a_result(
    project: Project,
) -> None:
    project.use_faulty()
    assert project.run("-k", "accuracy").ret == 0
    result = project.run("-k", "accuracy", "--mlms-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --mlms-resume: the last run, *, has ended and nothing*"])


def kept_items(path: Path) -> set[str]:
    lines = read_results(path)
    return {line["nodeid"] for line in lines if line.get("type") == "item"}


def cuts(content: bytes) -> list[int]:
    """Return every place around the ends of lines, and some places within each line."""
    places = set(range(0, len(content), 29))
    for end in [-1, *(index for index, byte in enumerate(content) if byte == ord("\n"))]:
        places |= {end + offset for offset in range(-3, 4)}
    return sorted(place for place in places if 0 <= place <= len(content))


def test_at_every_cut_of_the_results_each_item_is_kept_or_run_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunLock, "acquire", lambda lock: True)  # it takes most of the time
    project.use_faulty()
    assert project.run().ret == 0
    content = (project.results / "results.jsonl").read_bytes()
    path = project.path / "run" / "results.jsonl"
    path.parent.mkdir()
    for size in cuts(content):
        path.write_bytes(content[:size])
        file = ResultsFile(path.parent)
        file.resume()
        kept = path.read_bytes()
        assert kept == b"" or kept.endswith(b"}\n")
        assert content.startswith(kept)
        assert set(finished_items(path.parent)) == kept_items(path)
        is_whole = content[size : size + 1] in (b"\n", b"")
        assert len(kept) >= size or not is_whole, size


def test_a_run_is_resumed_by_one_session_at_a_time(project: Project) -> None:
    project.use_faulty()
    assert project.run("-k", "accuracy").ret == 0
    file = ResultsFile(project.results.resolve())
    file.resume()
    resume = f"--mlms-resume={file.path.parent.name}"
    for workers in ([], ["-n1"]):
        result = project.run(resume, *workers)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        text = f"ERROR: --mlms-resume: * is in use by process {os.getpid()} (*); wait for it, or *"
        result.stderr.fnmatch_lines([text])
    file.close()
    assert project.run(resume).ret == 0
    assert len(nodeids(project)) == 2


TEARDOWN = """
import os, signal, pytest

@pytest.fixture
def ending(request):
    yield
    in_worker = hasattr(request.config, "workerinput")  # the environment is that of the outer run
    {ending}

@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_mine(mlms_recorder, ending):
    mlms_recorder.note(value=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["alone", "xdist"])
def test_ctrl_c_in_a_tear_down_adds_no_second_line(project: Project, workers: list[str]) -> None:
    project.use_faulty()
    press = "os.kill(os.getppid() if in_worker else os.getpid(), 2)"
    wait = "__import__('time').sleep(900)"
    ending = f"{press}; {wait}"
    project.pytester.makepyfile(test_mine=TEARDOWN.format(ending=ending))
    result = project.run(*workers, "test_mine.py")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    (item,) = project.items()
    assert (item["verdict"], item["outcome"]) == ("PASSED", "passed")
    result = project.run("--mlms-resume=latest", "test_mine.py")
    assert result.ret == 0, "the item has its result"
    assert len(project.items()) == 1


PRESS_CTRL_C = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    on_controller = "worker" if hasattr(report, "node") else "alone"
    if report.when == "call" and on_controller == "{where}":
        raise KeyboardInterrupt
"""


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "where"), [([], "alone"), (["-n1"], "worker")])
def test_a_result_that_is_on_its_way_when_ctrl_c_is_pressed_is_written(
    project: Project, workers: list[str], where: str
) -> None:
    project.use_faulty()
    project.pytester.makeconftest(PRESS_CTRL_C.format(where=where))
    result = project.run("-k", "accuracy", *workers)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    (item,) = project.items()
    assert (item["verdict"], item["outcome"]) == ("PASSED", "passed")


def test_an_item_whose_tear_down_fails_has_one_line_and_runs_again(project: Project) -> None:
    project.use_faulty()
    ending = "assert os.path.exists('mended'), 'no end'"
    project.pytester.makepyfile(test_mine=TEARDOWN.format(ending=ending))
    result = project.run("test_mine.py")
    result.assert_outcomes(passed=1, errors=1)
    assert [line["type"] for line in project.lines()] == ["run", "item", "teardown", "end"]
    teardown = project.lines()[2]
    assert teardown["nodeid"] == project.items()[0]["nodeid"]
    assert "no end" in teardown["message"]
    (project.path / "mended").touch()
    assert project.run("--mlms-resume=latest", "test_mine.py").ret == 0
    assert len(project.items()) == 2


def test_a_run_that_does_not_exist_is_named_with_those_that_do(project: Project) -> None:
    result = project.run("--mlms-resume=yesterday")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --mlms-resume: there are no results in *yesterday; name a run of *: none"]
    )
    project.use_faulty()
    project.run("-k", "accuracy")
    result = project.run("--mlms-resume=yesterday")
    name = project.results.resolve().name
    result.stderr.fnmatch_lines([f"ERROR: --mlms-resume: *; name a run of *: {name}"])


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
    resumed = subprocess.run([*command, "--mlms-resume"], stdout=subprocess.DEVNULL)
    assert resumed.returncode == 0
    numbers = sorted(nodeid[-2] for nodeid in nodeids(project))
    assert numbers == list("012345")
    early = [number for number in started_items(project) if number < "3"]
    assert len(early) <= 6 - finished
