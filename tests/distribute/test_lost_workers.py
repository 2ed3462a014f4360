"""Runs whose workers die, hang or do harm: no result is lost, and none is there twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.distribute.test_controller import SLEEPERS
from tests.support.project import PREDICTORS, Project

CRASH = """
import os, signal, pytest

def pytest_runtest_call(item):
    before = [name for name in os.listdir("crashes") if name.startswith(item.name)]
    if "SELECT" in item.nodeid and len(before) < EACH and len(os.listdir("crashes")) < ALL:
        open(f"crashes/{item.name}-{os.getpid()}", "w").close()
        os.kill(os.getpid(), signal.SIGNAL)
"""

BROKEN_PLUGIN = """
import os

def pytest_configure(config):
    global is_worker
    is_worker = hasattr(config, "workerinput")

def pytest_runtest_logstart(nodeid):
    if "test_performance" in nodeid and is_worker and not os.listdir("crashes"):
        open("crashes/one", "w").close()
        raise RuntimeError("a plugin is broken")
"""

DIES_UNHEARD = """
import os, signal, time, pytest

class Controller:
    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if hasattr(self, "node") or report.when != "call":
            return
        time.sleep(1)  # by then the worker has said that this test is over, and asks for more
        self.node = report.node
        process = self.node.gateway._io.popen
        process.kill()
        process.wait()

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Controller())
"""

DIES_AT_START = """
import os

def pytest_sessionstart(session):
    if hasattr(session.config, "workerinput"):
        os._exit(9)
"""

DIES_EVERYWHERE = """
import os

def pytest_runtest_setup(item):
    os._exit(9)

def pytest_sessionstart(session):
    if not hasattr(session.config, "workerinput"):
        return
    number = len(os.listdir("crashes"))
    open(f"crashes/{os.getpid()}", "w").close()
    if number > 1:
        os._exit(9)
"""

OTHER_TESTS_THAT_CRASH = """
import os, pytest

@pytest.mark.parametrize("n", range(9))
def test_n(n):
    os._exit(9)
"""

INTERRUPTED = """
import time, pytest

@pytest.mark.parametrize("n", range(2))
@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_quick(mlms_case, n):
    pass

@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_agent(mlms_predictor):
    open("agent", "w").close()
    time.sleep(900)

@pytest.mark.mlms(manifest="manifests/digits.yaml")
def test_long(mlms_case):
    open("long", "w").close()
    time.sleep(900)
"""


def let_crash(
    project: Project, select: str, each: int = 1, of_all: int = 2, signal: str = "SIGKILL"
) -> None:
    """Let workers die in the items with ``select`` in their ids.

    An item ends ``each`` workers at most, and all items together ``of_all``.
    """
    (project.path / "crashes").mkdir()
    code = CRASH.replace("SELECT", select).replace("SIGNAL", signal)
    code = code.replace("EACH", str(each)).replace("ALL", str(of_all))
    project.pytester.makeconftest(code)


def assert_no_internal_error(result: pytest.RunResult) -> None:
    assert "INTERNALERROR" not in result.stdout.str()


def test_an_item_whose_worker_dies_runs_again_once_and_is_marked(project: Project) -> None:
    project.use_faulty()
    let_crash(project, "test_performance")
    result = project.run("-n2")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    items = {item["kind"]: item for item in project.items()}
    assert len(project.items()) == 2
    assert items["performance"]["attempt"] == 2
    assert "was lost while it ran" in items["performance"]["earlier"]
    assert "attempt" not in items["accuracy"]
    assert project.lines()[-1]["exit_status"] == 1
    result.stdout.fnmatch_lines(
        ["mlms: * was lost while it ran *test_performance*, which is run again elsewhere"]
    )


def test_an_item_that_loses_two_workers_is_an_error_and_the_rest_is_measured(
    project: Project,
) -> None:
    project.use_faulty()
    let_crash(project, "test_performance", 9, 9)
    result = project.run("-n2")
    assert result.ret == 1
    result.assert_outcomes(passed=1, failed=1)
    items = {item["kind"]: item for item in project.items()}
    assert len(project.items()) == 2
    assert items["accuracy"]["verdict"] == "PASSED"
    assert items["performance"]["verdict"] == "ERROR"
    assert "was lost while it ran; then worker" in items["performance"]["message"]
    case = "faulty-cpu-b8-single_stream"
    result.stdout.fnmatch_lines(
        [
            f"* digits-cnn: test_performance[[]{case}[]] *",
            f"digits-cnn {case}: * was lost while it ran; then worker *",
            f"reproduce: pytest *'manifests/digits.yaml::test_performance[[]{case}[]]'",
            f"FAILED *[[]{case}[]] - * was lost while it ran*",
        ]
    )


def test_an_internal_error_of_a_worker_costs_no_result(project: Project) -> None:
    project.use_faulty()
    (project.path / "crashes").mkdir()
    project.pytester.makeconftest(BROKEN_PLUGIN)
    result = project.run("-n2")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    assert sorted(item.get("attempt", 1) for item in project.items()) == [1, 2]
    result.stdout.fnmatch_lines(
        ["mlms: gw* has an internal error:", "*a plugin is broken", "mlms: * was lost: int*"]
    )


def test_a_worker_that_is_gone_before_its_end_is_known_is_sent_items_without_harm(
    project: Project,
) -> None:
    project.pytester.makeconftest(DIES_UNHEARD)
    few = SLEEPERS.replace("range(12)", "range(3)")  # of which a worker is sent one at a time
    few = few.replace("range(6)", "range(0)").replace("0.05", "0.05 + 5 * (n == 1)")
    project.pytester.makepyfile(test_sleepers=few)
    result = project.run("-n2", "test_sleepers.py")
    assert_no_internal_error(result)
    result.assert_outcomes(passed=3, skipped=1)
    assert len(project.items()) == 3


def start_interrupted(project: Project) -> subprocess.Popen[bytes]:
    """Start a run, and wait until its last two items run and the others have results."""
    project.use_faulty()
    (project.path / "test_interrupted.py").write_text(INTERRUPTED)
    command = [sys.executable, "-m", "pytest", "--mlms-manifests=manifests", "-n2"]
    command += [f"--mlms-predictors={PREDICTORS}", "--mlms-worker-timeout=900"]
    command.append("test_interrupted.py")
    with (project.path / "output").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    deadline = time.monotonic() + 600
    while not are_running(project.path):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


def are_running(folder: Path) -> bool:
    if not ((folder / "agent").exists() and (folder / "long").exists()):
        return False
    results = folder / "mlms-results" / "latest" / "results.jsonl"
    lines = results.read_text().splitlines()
    return sum("test_quick" in line for line in lines) == 2


@pytest.mark.parametrize(
    "reached", ["the whole group", pytest.param("the controller only", marks=pytest.mark.slow)]
)
def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(
    project: Project, reached: str
) -> None:
    process = start_interrupted(project)
    others = psutil.Process(process.pid).children(recursive=True)
    if reached == "the whole group":
        os.killpg(process.pid, signal.SIGINT)
    else:
        os.kill(process.pid, signal.SIGINT)
    assert process.wait(600) == pytest.ExitCode.INTERRUPTED
    assert len(others) >= 3  # two workers, an agent
    _, alive = psutil.wait_procs(others, timeout=600)
    assert alive == []
    outcomes = {}
    for item in project.items():
        name = item["nodeid"].partition("::")[2]
        outcomes[name.partition("[")[0]] = item["outcome"]
    assert outcomes == {
        "test_quick": "passed",
        "test_agent": "interrupted",
        "test_long": "interrupted",
    }
    assert project.lines()[-1]["exit_status"] == pytest.ExitCode.INTERRUPTED
    output = (project.path / "output").read_text()
    assert "INTERNALERROR" not in output
    assert "Traceback" not in output
    assert "KeyboardInterrupt" in output
    assert "mlms: results in " in output


@pytest.mark.slow
def test_every_item_is_there_once_when_workers_die_among_many_quick_ones(project: Project) -> None:
    code = SLEEPERS.replace("range(12)", "range(60)").replace("time.sleep(0.05)", "pass")
    project.pytester.makepyfile(test_session=code)
    let_crash(project, "test_sleep")
    result = project.run("-n2", "test_session.py", "-ksleep")
    assert result.ret == 1
    result.assert_outcomes(passed=60)
    items = project.items()
    assert len({item["nodeid"] for item in items}) == len(items) == 60


@pytest.mark.slow
@pytest.mark.parametrize("how", [["--dist=load"], ["--dist=loadfile", "--max-worker-restart=0"]])
def test_a_crash_of_another_test_of_the_session_is_reported_as_xdist_does(
    project: Project, how: list[str]
) -> None:
    project.pytester.makepyfile(test_session=SLEEPERS)
    let_crash(project, "test_other", of_all=1)
    result = project.run("-n2", *how, "test_session.py")
    assert result.ret == 1
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] == 1
    assert outcomes["passed"] in (17, 18)  # by file, xdist runs the one that crashed again
    assert_no_internal_error(result)
    assert len(project.items()) == 12


@pytest.mark.slow(seconds=65)
def test_a_worker_that_falls_silent_is_given_up(project: Project) -> None:
    project.use_faulty()
    let_crash(project, "test_performance", signal="SIGSTOP")
    result = project.run("-n2", "--mlms-worker-timeout=60")
    assert result.ret == 1
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["mlms: * has been silent for 60 s, and is given up"])
    assert sorted(item.get("attempt", 1) for item in project.items()) == [1, 2]


@pytest.mark.slow
def test_workers_that_always_die_at_their_start_end_the_run_with_all_items_as_errors(
    project: Project,
) -> None:
    project.use_faulty()
    (project.path / "crashes").mkdir()
    project.pytester.makeconftest(DIES_EVERYWHERE)
    result = project.run("-n2")
    assert result.ret == 1
    assert_no_internal_error(result)
    items = project.items()
    assert [item["verdict"] for item in items] == ["ERROR", "ERROR"]
    assert len(list((project.path / "crashes").iterdir())) <= 6


def test_workers_that_die_before_they_have_collected_end_the_run(project: Project) -> None:
    project.pytester.makeconftest(DIES_AT_START)
    result = project.run("-n1")
    assert result.ret == 1
    assert_no_internal_error(result)
    result.stdout.fnmatch_lines(["mlms: gw0 was lost: *", "mlms: no worker is left"])


@pytest.mark.slow
def test_other_tests_that_end_every_worker_end_the_run(project: Project) -> None:
    project.use_faulty()
    project.pytester.makepyfile(test_crashes=OTHER_TESTS_THAT_CRASH)
    result = project.run("-n2", "manifests", "test_crashes.py")
    assert result.ret == 1
    assert_no_internal_error(result)
    result.stdout.fnmatch_lines(["mlms: no worker is left"])
    names = [item["nodeid"] for item in project.items()]
    assert len(names) == len(set(names)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("dist", ["load", "loadfile", "worksteal"])
def test_other_tests_of_a_worker_that_dies_in_an_item_of_a_manifest_run_elsewhere(
    project: Project, dist: str
) -> None:
    code = SLEEPERS.replace("    pass", "    time.sleep(0.2)")
    project.pytester.makepyfile(test_session=code)
    let_crash(project, "test_sleep", of_all=1)
    result = project.run("-n2", "--dist", dist, "test_session.py")
    assert result.ret == 1
    result.assert_outcomes(passed=18)
    assert_no_internal_error(result)
