"""Soaks as pytest items: the predictor ``leaky`` does what time may do to a process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

from pytest_mlms.core.quantities.table import SOAK_LIMITS
from tests.support.project import HANG_GUARD, PREDICTORS, QUICK, Project, SharedRuns

STACKS = """
clean: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001"}}
leaking: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001", LEAKY_BYTES: "5000"}}
threads: {framework: leaky, interpreter: current, env: {LEAKY_BY: threads, LEAKY_BYTES: "50",
  LEAKY_SECONDS: "0.001"}}
slower: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001", LEAKY_SLOWER: "0.01"}}
dying: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001", LEAKY_DIES: "300"}}
killed: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001", LEAKY_KILLED: "3600"}}
leaking_killed: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001", LEAKY_KILLED: "3600",
  LEAKY_BYTES: "5000"}}
killed_soon: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001", LEAKY_KILLED: "300"}}
wrong: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001", LEAKY_WRONG: "600"}}
drawing: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001", LEAKY_DRAWS: ""}}
forming: {framework: leaky, interpreter: current, env: {LEAKY_SECONDS: "0.001", LEAKY_DRAWS: form}}
"""


@pytest.fixture
def soaks(project: Project) -> Project:
    """A project whose model runs on all of the stacks."""
    project.edit("onnxruntime >=1.17", "leaky")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds()
    (project.folder / "stacks.yaml").write_text(STACKS)
    return project


ANY_DRIFT = "  soak_latency_drift: {max: 200 %}\n  soak_throughput_drift: {max: 200 %}"
"""Limits that four seconds beside other tests keep, where a test is of something else than drift."""


def only_soaks(project: Project) -> dict[str, dict[str, Any]]:
    return {item["stack"]["name"]: item for item in project.items() if item["kind"] == "soak"}


def test_a_soak_is_an_item_beside_the_others(soaks: Project) -> None:
    result = soaks.run(
        "--mlms-soak=3s", "--mlms-stack=leaking", "-k", "soak", "--junitxml=junit.xml"
    )
    (item,) = soaks.items()
    assert item["nodeid"] == "manifests/digits.yaml::test_soak[leaking-cpu-b8]"
    assert set(item["estimates"]) == set(SOAK_LIMITS)
    result.stdout.fnmatch_lines(["*mlms: soaks, worst first*"])
    assert "mlms_soak_growth_bytes" in (soaks.path / "junit.xml").read_text()
    assert (soaks.results / item["artifacts"]["soak-b.npz"]).exists()


@pytest.mark.slow
def test_soaks_judge_what_time_does_and_other_items_stay(soaks: Project) -> None:
    names = ("clean", "leaking", "threads", "wrong", "drawing", "forming")
    stacks = [f"--mlms-stack={name}" for name in names]
    soaks.set_thresholds(ANY_DRIFT)
    result = soaks.run("--mlms-soak=4s", *stacks, "-k", "soak", "-n2")
    found = only_soaks(soaks)
    assert {name: item["verdict"] for name, item in found.items()} == {
        "clean": "PASSED",
        "leaking": "FAILED",
        "threads": "FAILED",
        "wrong": "FAILED",
        "drawing": "INCONCLUSIVE",
        "forming": "INCONCLUSIVE",
    }
    assert found["leaking"]["estimates"]["soak_growth"]["value"] == pytest.approx(5000, rel=0.2)
    broken = {
        name: [limit["quantity"] for limit in item["limits"] if limit["verdict"] == "FAILED"]
        for name, item in found.items()
    }
    assert broken["leaking"] == ["soak_growth"]
    assert "soak_threads" in broken["threads"]
    assert broken["wrong"] == ["soak_outputs"]
    output = result.stdout.str()
    assert "the default limit; thresholds: soak_growth in " in output


@pytest.mark.slow
def test_a_limit_of_the_manifest_replaces_the_default(soaks: Project) -> None:
    soaks.set_thresholds("  soak_growth: {max: 20 kB}\n  memory_growth: {max: 1 kB}")
    soaks.run("--mlms-soak=4s", "--mlms-stack=leaking", "-k", "soak or performance")
    items = {item["kind"]: item for item in soaks.items()}
    limits = {limit["quantity"]: limit["verdict"] for limit in items["soak"]["limits"]}
    assert limits["soak_growth"] == "PASSED"
    assert items["performance"]["verdict"] == "FAILED"


@pytest.mark.slow
def test_a_soak_against_another_stack_judges_what_it_does_not_do(soaks: Project) -> None:
    against = ["--mlms-soak=8s", "--mlms-against=clean", "-k", "soak"]
    soaks.run(*against, "--mlms-stack=leaking", "--mlms-stack=clean")
    (item,) = soaks.items()
    assert (item["verdict"], item["against"]["name"]) == ("REGRESSED", "clean")
    assert item["nodeid"].endswith("test_soak[leaking-vs-clean-cpu-b8]")
    assert set(item["soak"]) == {"a", "b"}
    soaks.run("--mlms-soak=8s", "-k", "soak", "--mlms-aa", "--mlms-stack=leaking")
    (same,) = soaks.items()
    assert same["verdict"] in ("PASSED", "INCONCLUSIVE")
    growth = same["estimates"]["soak_growth"]
    is_none = growth["low"] <= 0 <= growth["high"] or abs(growth["value"]) <= 50
    assert is_none, "both sides leak 5,000 B a call"


def test_a_candidate_that_dies_in_a_soak_has_regressed_and_a_baseline_that_does_is_an_error(
    soaks: Project,
) -> None:
    against = ["--mlms-soak=8s", "-k", "soak", "--tb=short"]
    result = soaks.run(*against, "--mlms-stack=dying", "--mlms-against=clean")
    (item,) = soaks.items()
    assert item["verdict"] == "REGRESSED"
    (crash,) = item["comparisons"]
    assert (crash["quantity"], crash["verdict"]) == ("crash", "REGRESSED")
    assert "soak-b.npz" in item["artifacts"]
    text = "*dying (B) against clean (A): REGRESSED (crash), B fails where A does not"
    result.stdout.fnmatch_lines([text])
    result.stdout.fnmatch_lines(["REGRESSED *"])
    assert "Traceback" not in result.stdout.str()
    soaks.run(*against, "--mlms-stack=clean", "--mlms-against=dying")
    (error,) = soaks.items()
    assert error["verdict"] == "ERROR"


AGAINST_CLEAN = ["--mlms-against=clean"]


@pytest.mark.parametrize(
    ("stack", "options", "verdict"),
    [
        ("killed", [], "INVALID"),
        ("leaking_killed", [], "FAILED"),
        pytest.param("leaking_killed", AGAINST_CLEAN, "REGRESSED", marks=pytest.mark.slow),
        pytest.param("killed", AGAINST_CLEAN, "INVALID", marks=pytest.mark.slow),
        pytest.param("clean", ["--mlms-against=killed"], "INVALID", marks=pytest.mark.slow),
    ],
)
def test_a_soak_whose_process_is_killed_is_judged_as_far_as_it_goes_and_not_repeated(
    soaks: Project, stack: str, options: list[str], verdict: str
) -> None:
    seconds = 60 if options else 30  # of both sides
    asked = [f"--mlms-soak={seconds}s", "-k", "soak", f"--mlms-stack={stack}", *options]
    result = soaks.run(*asked)
    (item,) = soaks.items()
    assert item["verdict"] == verdict
    assert "soak-b.npz" in item["artifacts"]
    assert item["estimates"]["soak_growth"]["replicates"] >= 24
    output = result.stdout.str()
    assert output.count("killed by SIGKILL") >= 1
    assert f"of {seconds} s" in output
    assert "MlmsKilled" not in output
    assert "Traceback" not in output
    again = soaks.run(*asked, "--mlms-resume")
    again.stdout.fnmatch_lines(["mlms: resumed: 1 earlier results kept"])


def test_a_killed_soak_that_can_not_be_trusted_names_the_kill_though_a_limit_is_broken(
    soaks: Project,
) -> None:
    (soaks.path / "conftest.py").write_text(
        "from pytest_mlms.items.device_monitor import DeviceMonitor\n"
        "DeviceMonitor.problems = lambda monitor: ['throttled: it was too hot']\n"
    )
    result = soaks.run("--mlms-soak=30s", "-k", "soak", "--mlms-stack=leaking_killed")
    (item,) = soaks.items()
    assert item["verdict"] == "INVALID"
    assert "throttled: it was too hot" in item["message"]
    assert "killed by SIGKILL" in item["message"]
    result.assert_outcomes(failed=1)


def test_a_soak_whose_candidate_is_killed_before_it_can_be_judged_begins_once_more(
    soaks: Project,
) -> None:
    against = ["--mlms-stack=killed_soon", "--mlms-against=clean"]
    result = soaks.run("--mlms-soak=30s", "-k", "soak", *against)
    (item,) = soaks.items()
    assert item["verdict"] == "REGRESSED"
    assert result.stdout.str().count("MlmsKilled") == 1


@pytest.mark.slow
def test_latency_that_rises_over_a_soak_fails(soaks: Project) -> None:
    soaks.run("--mlms-soak=6s", "--mlms-stack=slower", "-k", "soak")
    (item,) = soaks.items()
    broken = [limit["quantity"] for limit in item["limits"] if limit["verdict"] == "FAILED"]
    assert broken == ["soak_latency_drift", "soak_throughput_drift"]


def test_an_interrupted_soak_keeps_what_was_measured_and_judges_it(soaks: Project) -> None:
    options = ["--mlms-manifests=manifests", f"--mlms-predictors={PREDICTORS}", *QUICK]
    asked = ["--mlms-soak=60s", "--mlms-stack=leaking", "-k", "soak"]
    command = [sys.executable, "-m", "pytest", *options, *asked]
    with subprocess.Popen(command, cwd=soaks.path, stdout=subprocess.PIPE, text=True) as run:
        wait_for_agent(run)
        time.sleep(4)
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=HANG_GUARD)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    (item,) = soaks.items()
    assert item["outcome"] == "interrupted"
    assert len(item["soak"]["b"]["calls"]) >= 1
    assert "soak-b.npz" in item["message"]
    assert item["message"].endswith(f"as far as it goes it is {item['verdict']}")
    (warning,) = (line for line in output.splitlines() if "MlmsInconclusive" in line)
    assert f": {', '.join(SOAK_LIMITS)}: undecided: needs 24 blocks of calls" in warning


def wait_for_agent(run: subprocess.Popen[str]) -> None:
    """Wait until there is an agent, or the run ends."""
    end = time.monotonic() + HANG_GUARD
    while time.monotonic() < end and run.poll() is None:
        if psutil.Process(run.pid).children(recursive=True):
            return
        time.sleep(0.05)


NONSENSE = ["2s", "0", "-1min", "nan", "10 bananas", "99999min", "10"]


def run_nonsense(project: Project) -> pytest.RunResult:
    return project.run_in_one_process(*([f"--mlms-soak={value}"] for value in NONSENSE))


@pytest.mark.parametrize("value", NONSENSE)
def test_a_nonsense_duration_is_refused(
    soaks: Project, shared_runs: SharedRuns, value: str
) -> None:
    result = shared_runs.of(run_nonsense, soaks).result
    status = int(pytest.ExitCode.USAGE_ERROR)
    assert result.outlines.count(f"== {status}") == len(NONSENSE)
    message = f"{value!r} is not a time of a soak; write seconds or minutes"
    assert f"argument --mlms-soak: {message}" in result.stderr.str()
