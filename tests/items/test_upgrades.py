"""Upgrades as pytest items: stacks of the labour predictor that differ by their environment."""

from __future__ import annotations

import fnmatch
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psutil
import pytest

from pytest_mlms.cli.main import main
from tests.support.driver import H200, Driver
from tests.support.project import HANG_GUARD, PREDICTORS, QUICK, Project

STACKS = """
slow: {framework: labour, interpreter: current, env: {LABOUR_WORK: "8"}}
fast: {framework: labour, interpreter: current, env: {LABOUR_WORK: "1"}}
wrong: {framework: labour, interpreter: current, env: {LABOUR_WORK: "1", LABOUR_FAULT: wrong}}
elsewhere: {framework: labour, interpreter: current, env: {LABOUR_FAULT: device}}
stays: {framework: labour, interpreter: current, env: {LABOUR_FAULT: stay, LABOUR_COUNT: loads}}
twin: {framework: labour, interpreter: current, env: {LABOUR_WORK: "8"}}
lacking: {framework: labour, interpreter: current, env: {LABOUR_FAULT: load}}
dying: {framework: labour, interpreter: current, env: {LABOUR_FAULT: die}}
killed: {framework: labour, interpreter: current, env: {LABOUR_FAULT: killed}}
gpu: {framework: labour, interpreter: current, env: {LABOUR_EVENTS: "0.001"}}
threaded: {framework: labour, interpreter: current, env: {LABOUR_FAULT: threads}}
few: {framework: labour, interpreter: current, env: {LABOUR_FAULT: few}}
first: {framework: labour, interpreter: current, env: {LABOUR_FAULT: first}}
seventh: {framework: labour, interpreter: current, env: {LABOUR_FAULT: seventh}}
race: {framework: labour, interpreter: current, threads: 1, env: {LABOUR_FAULT: race}}
alike: {framework: labour, interpreter: current, env: {LABOUR_VERSION: "2.0"}}
gone: {framework: labour, interpreter: python-of-nowhere}
"""


@pytest.fixture
def upgrades(project: Project) -> Project:
    """A project whose model runs on all of the stacks."""
    project.edit("onnxruntime >=1.17", "labour")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds()
    stacks = STACKS.replace("loads", str(project.path / "loads"))
    (project.folder / "stacks.yaml").write_text(stacks)
    return project


def test_a_gate_that_no_upgrade_of_the_run_measures_is_warned_of(upgrades: Project) -> None:
    gates = ("--mlms-gate=query_rate=5%", "--mlms-gate=throughput=5%")
    result = upgrades.run("--collect-only", "--mlms-aa", "--mlms-stack=slow", *gates)
    text = "*MlmsNotGated: --mlms-gate=query_rate=5% judges nothing: no upgrade of this run *"
    result.stdout.fnmatch_lines([text])
    assert "throughput=5% judges nothing" not in result.stdout.str()


def by_stack(project: Project) -> dict[str, dict[str, Any]]:
    return {item["stack"]["name"]: item for item in project.items()}


def verdicts(project: Project) -> dict[str, str]:
    return {name: item["verdict"] for name, item in by_stack(project).items()}


def check_line(item: dict[str, Any]) -> None:
    """Check the fields of an upgrade to the stack "slow", which takes eight times as long."""
    assert item["nodeid"] == "manifests/digits.yaml::test_upgrade[slow-vs-fast-cpu-b8]"
    assert item["kind"] == "upgrade"
    assert item["against"]["name"] == "fast"
    assert item["complete"] is True
    terms = item["terms"]
    assert (terms["tolerances"], terms["gates"]) == ({"latency": 0.03}, ["latency"])
    assert terms["clock"] is None
    comparisons = {compared["quantity"]: compared for compared in item["comparisons"]}
    assert comparisons["latency"]["ratio"] == pytest.approx(8)
    assert all(record["pairs"] >= 30 for record in item["rounds"])
    candidate = item["rounds"][0]["sides"]["b"]
    assert {"pid", "versions", "executable", "threads_used"} <= set(candidate)
    assert item["layers"][0][0] == "extra"


def check_output(output: str) -> None:
    """Check the text of the failures, and the table at the end."""
    assert "slow (B) against fast (A): REGRESSED in latency" in output
    assert output.count("layers that changed") == 1
    assert "wrong (B) against fast (A): REGRESSED, B computes something else" in output
    assert "candidate elsewhere: asked for cpu, labour runs on cuda:0" in output
    assert "Traceback" not in output
    table = output[output.index("mlms: upgrades") :].splitlines()
    sides = [line for line in table if line.endswith("against fast (A), labour")]
    assert [line.split()[0] for line in sides[:2]] == ["wrong", "slow"], "wrong outputs come first"
    slow = table.index(sides[1])
    assert table[slow + 2].split()[:4] == ["REGRESSED", "digits-cnn", "cpu-b8", "1.00"]
    assert all(len(line) <= 100 for line in [*sides, table[slow + 2]])


def check_report(project: Project) -> None:
    """Check the text for an issue tracker on both upgrades that regressed."""
    text = (project.path / "upgrade-report.md").read_text()
    assert text.count("## Verdict: REGRESSED") == 2
    assert "# `slow`: latency ×8" in text
    assert "# `wrong`: other outputs than in `fast`" in text
    assert "| `extra` " in text
    assert str(project.path) not in text
    assert "mlms repro" not in text, "a bundle can't have stacks that differ in their env"


def junit_properties(file: Path) -> dict[str | None, str | None]:
    """Return the properties of the first test case."""
    case = ElementTree.parse(file).find(".//testcase")
    assert case is not None
    return {entry.get("name"): entry.get("value") for entry in case.iter("property")}


@pytest.mark.slow
def test_upgrades_are_judged_shown_and_recorded_and_can_be_judged_again(
    upgrades: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    stacks = [f"--mlms-stack={name}" for name in ("slow", "wrong", "elsewhere")]
    files = ("--junitxml=junit.xml", "--mlms-upgrade-report")
    result = upgrades.run("--mlms-against=fast", *stacks, *files, "-rA")
    result.assert_outcomes(failed=3)
    expected = {"slow": "REGRESSED", "wrong": "REGRESSED", "elsewhere": "INVALID"}
    assert verdicts(upgrades) == expected
    slow = by_stack(upgrades)["slow"]
    check_line(slow)
    check_output(result.stdout.str())
    check_report(upgrades)
    result.stdout.fnmatch_lines(
        ["mlms: report of 2 upgrades that regressed in */upgrade-report.md"]
    )
    properties = junit_properties(upgrades.path / "junit.xml")
    assert float(properties["mlms_ratio_of_latency"] or 0) == pytest.approx(8)

    run = upgrades.path / "mlms-results" / "latest"
    for index in range(len(slow["rounds"])):
        assert (run / slow["artifacts"][f"pairs-{index}.npz"]).exists()
    capsys.readouterr()
    check_judging_again(run, capsys)


def check_judging_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that the raw pairs and the figures alone give the same verdicts as the run."""
    assert main(["judge", str(run)]) == 1
    from_pairs = capsys.readouterr().out
    assert "0 of 2 would have been decided otherwise" in from_pairs
    assert "elsewhere" not in from_pairs, "it was never measured"
    for pairs in run.glob("items/*/pairs-*.npz"):
        pairs.unlink()
    assert main(["judge", str(run / "results.jsonl")]) == 1
    *from_figures, note = capsys.readouterr().out.splitlines()
    assert from_figures == from_pairs.splitlines()
    assert note == "2 decided from the figures of their rounds: the raw pairs are not there"


BROKEN = {
    "lacking": "candidate lacking: 'load' raised ValueError: an operator that this version lacks *",
    "dying": "candidate dying: the agent (process *) ended while it did 'turn': exit status 7; its *",
    "killed": "candidate killed: the agent (process *) ended while it did 'turn': killed by SIGKILL, *",
}
"""Stack -> the reason of the crash of an upgrade to it."""


@pytest.mark.slow
def test_a_broken_candidate_fails_its_own_item_only_and_is_named(upgrades: Project) -> None:
    stacks = [f"--mlms-stack={name}" for name in (*BROKEN, "threaded", "slow")]
    result = upgrades.run("--mlms-against=fast", *stacks)
    result.assert_outcomes(failed=5)
    items = by_stack(upgrades)
    for name, reason in BROKEN.items():
        assert items[name]["verdict"] == "REGRESSED"
        crash = items[name]["comparisons"][0]
        assert crash["quantity"] == "crash"
        assert fnmatch.fnmatchcase(crash["lacking"].splitlines()[0], reason)
        assert not items[name]["complete"]
    assert (items["slow"]["verdict"], items["threaded"]["verdict"]) == ("REGRESSED", "INVALID")
    threads = "threads of its own choice and the candidate with 7 threads, "
    assert f"the baseline runs with {threads}" in items["threaded"]["message"]
    assert "Traceback" not in result.stdout.str()


@pytest.mark.slow
def test_a_broken_baseline_is_named_in_every_item(upgrades: Project) -> None:
    result = upgrades.run("--mlms-against=killed", "--mlms-stack=fast", "--mlms-stack=slow")
    result.assert_outcomes(failed=2)
    message = "*: baseline killed: the agent (process *) ended while it did 'turn': killed by*"
    result.stdout.fnmatch_lines([message, message])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("candidate", "baseline"), [("labour==99", "fast"), ("fast", "labour==99")]
)
def test_a_stack_that_cannot_be_made_is_an_error_on_either_side(
    upgrades: Project, monkeypatch: pytest.MonkeyPatch, candidate: str, baseline: str
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    sides = (f"--mlms-stack={candidate}", f"--mlms-against={baseline}")
    result = upgrades.run(*sides, "--mlms-cache=cache")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        [
            "*stack labour==99 can't be made with Python *",
            "*No matching distribution found for labour==99*",
        ]
    )
    assert list(verdicts(upgrades).values()) == ["ERROR"]
    assert "Traceback" not in result.stdout.str()


@pytest.mark.slow
def test_a_clock_that_is_not_there_is_invalid_and_the_others_are_named(
    upgrades: Project,
) -> None:
    result = upgrades.run("--mlms-against=fast", "--mlms-stack=slow", "--mlms-clock=device")
    result.assert_outcomes(failed=1)
    clock = "--mlms-clock device (time on the device, by its own events)"
    result.stdout.fnmatch_lines([f"*{clock} isn't there: *ask for one of*"])
    assert verdicts(upgrades) == {"slow": "INVALID"}


# From the second round on another process is on the GPU.
TAKEN = """
import os
from pathlib import Path
from pytest_mlms.items.device_monitor import DeviceMonitor

check = DeviceMonitor.check

def check_later(self):
    pids = {*self._own_pids, *([77] if len(self._readings) > 1 else [])}
    processes = "".join(f"process {pid} 4096\\n" for pid in pids)
    Path(os.environ["MLMS_STUB_GPUS"]).write_text(os.environ["H200"] + processes)
    return check(self)

DeviceMonitor.check = check_later
"""


@pytest.mark.slow
def test_a_device_that_is_taken_between_rounds_is_invalid(
    upgrades: Project, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("H200", H200)
    upgrades.pytester.makeconftest(TAKEN)
    upgrades.edit("devices: [cpu]", "devices: [cuda]")
    result = upgrades.run("--mlms-aa", "--mlms-stack=gpu")
    result.assert_outcomes(failed=1)
    reason = "other processes were on it: 77"
    result.stdout.fnmatch_lines([f"*what was measured can't be trusted; {reason}; run it again*"])
    (item,) = upgrades.items()
    assert item["verdict"] == "INVALID"
    assert item["clock"] == "device"
    assert item["complete"] is False
    assert len(item["rounds"]) == 2
    assert {"pairs-0.npz", "pairs-1.npz"} <= set(item["artifacts"])


@pytest.mark.slow
def test_a_stack_against_itself_shows_the_noise_and_passes(upgrades: Project) -> None:
    result = upgrades.run("--mlms-aa", "--mlms-stack=slow")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*mlms: noise of this machine*", "slow (B) against slow (A), labour", "PASSED*cpu-b8*%*"]
    )
    assert verdicts(upgrades) == {"slow": "PASSED"}


SHORT = ("--mlms-against=fast", "--mlms-stack=slow", "--mlms-budget=0.01")


@pytest.mark.slow
def test_a_budget_that_is_too_small_warns_and_fails_under_strict(upgrades: Project) -> None:
    result = upgrades.run(*SHORT)
    assert result.parseoutcomes() == {"undecided": 1, "warnings": 1}
    headline = "digits-cnn slow-vs-fast-cpu-b8: latency ×*, tolerance 3 %"
    result.stdout.fnmatch_lines([f"*MlmsInconclusive: {headline}*; try: --mlms-budget*"])
    assert verdicts(upgrades) == {"slow": "INCONCLUSIVE"}
    upgrades.run(*SHORT, "--mlms-strict").assert_outcomes(failed=1)


def test_one_stack_on_both_sides_is_refused(upgrades: Project) -> None:
    result = upgrades.run("--mlms-against=slow", "--mlms-stack=slow")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = "both sides of the upgrade are the stack slow; name another one"
    assert message in result.stderr.str()


def test_two_stacks_of_the_same_software_fail_before_anything_is_measured(
    upgrades: Project,
) -> None:
    result = upgrades.run("--mlms-against=twin", "--mlms-stack=slow")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*both sides are the same: twin and slow start the same interpreter*"]
    )


@pytest.mark.slow
def test_a_baseline_that_this_machine_lacks_is_skipped_and_fails_the_run(
    upgrades: Project,
) -> None:
    result = upgrades.run("--mlms-against=gone", "--mlms-stack=slow", "-rs")
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, "no upgrade was judged"
    result.stdout.fnmatch_lines(["mlms: no upgrade was judged: all were skipped*"])
    result.stdout.fnmatch_lines(["*python-of-nowhere*; install it, or name another"])
    assert verdicts(upgrades) == {"slow": "SKIPPED"}
    strict = upgrades.run("--mlms-against=gone", "--mlms-stack=slow", "--mlms-strict")
    strict.assert_outcomes(errors=1)


def test_a_baseline_that_is_not_known_is_refused(upgrades: Project) -> None:
    result = upgrades.run("--mlms-against=fats")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--mlms-against" in result.stderr.str()
    assert "fats" in result.stderr.str()


def test_a_stack_is_compared_either_with_itself_or_with_another(upgrades: Project) -> None:
    result = upgrades.run("--mlms-aa", "--mlms-against=fast", "--mlms-stack=slow")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--mlms-aa is each stack against itself; leave out" in result.stderr.str()


def test_upgrades_replace_the_other_items(upgrades: Project) -> None:
    result = upgrades.run("--collect-only", "-q", "--mlms-against=fast", "--mlms-stack=slow")
    collected = [line for line in result.outlines if "::" in line]
    assert collected == ["manifests/digits.yaml::test_upgrade[slow-vs-fast-cpu-b8]"]
    without = upgrades.run("--collect-only", "-q", "--mlms-stack=slow")
    assert "test_upgrade" not in without.stdout.str()


@pytest.mark.parametrize(
    ("option", "value"), [("--mlms-tolerance", "much"), ("--mlms-clock", "sundial")]
)
def test_an_option_with_an_impossible_value_is_refused(
    upgrades: Project, option: str, value: str
) -> None:
    result = upgrades.run(f"{option}={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"argument {option}: '{value}' is not " in result.stderr.str()


def wait_for_second_round(loads: Path, run: subprocess.Popen[str]) -> None:
    """Wait until the third process loads its model, or the run ends."""
    end = time.monotonic() + HANG_GUARD
    while time.monotonic() < end and run.poll() is None:
        if loads.exists() and loads.stat().st_size > 2:
            return
        time.sleep(0.05)


@pytest.mark.slow
def test_an_interrupt_between_rounds_keeps_what_was_measured_as_incomplete(
    upgrades: Project,
) -> None:
    options = ["--mlms-manifests=manifests", f"--mlms-predictors={PREDICTORS}", *QUICK]
    command = [sys.executable, "-m", "pytest", *options, "--mlms-aa", "--mlms-stack=stays"]
    with subprocess.Popen(command, cwd=upgrades.path, stdout=subprocess.PIPE, text=True) as run:
        wait_for_second_round(upgrades.path / "loads", run)
        agents = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=HANG_GUARD)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    _, alive = psutil.wait_procs(agents, timeout=HANG_GUARD)
    assert alive == []
    (item,) = upgrades.items()
    assert item["verdict"] == "ERROR"
    assert item["outcome"] == "interrupted"
    assert item["complete"] is False
    assert len(item["rounds"]) == 1
    assert item["rounds"][0]["figures"]["latency"][4] >= 30
    assert "mlms: results in" in output


@pytest.mark.slow
def test_outputs_of_all_inputs_of_repeated_calls_and_of_more_threads_are_compared(
    upgrades: Project,
) -> None:
    stacks = [f"--mlms-stack={name}" for name in ("few", "first", "seventh", "race", "alike")]
    upgrades.run("--mlms-against=fast", *stacks, "--mlms-tolerance=50%")
    wrong = dict.fromkeys(("few", "first", "seventh", "race"), "REGRESSED")
    assert verdicts(upgrades) == {**wrong, "alike": "PASSED"}
    texts = {name: item["text"] for name, item in by_stack(upgrades).items()}
    assert " of 600 inputs (worst: row " in texts["few"]
    assert "agreement: B against itself in the first call of a process" in texts["first"]
    assert "agreement: B gives something else on " in texts["seventh"]
    assert "agreement: at the frameworks' own number of threads, outputs differ" in texts["race"]
    assert "agreement: outputs are equal on 600 of 600 inputs" in texts["alike"]
