"""Upgrades as pytest items: stacks that differ by their environment, in the labour predictor."""

from __future__ import annotations

import fnmatch
import json
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
from tests.support.project import PREDICTORS, QUICK, Project

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
gone: {framework: labour, interpreter: /nowhere/python}
"""


@pytest.fixture
def upgrades(project: Project) -> Project:
    project.edit("onnxruntime >=1.17", "labour")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds()
    (project.folder / "stacks.yaml").write_text(
        STACKS.replace("loads", str(project.path / "loads"))
    )
    return project


def by_stack(project: Project) -> dict[str, dict[str, Any]]:
    return {item["stack"]["name"]: item for item in project.items()}


@pytest.mark.slow
def test_upgrades_are_judged_shown_recorded_and_can_be_judged_again(
    upgrades: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    stacks = [f"--mlms-stack={name}" for name in ("slow", "wrong", "elsewhere")]
    result = upgrades.run("--mlms-against=fast", *stacks, "--junitxml=junit.xml", "-rA")
    result.assert_outcomes(failed=3)
    items = by_stack(upgrades)
    assert {name: item["verdict"] for name, item in items.items()} == {
        "slow": "REGRESSED",
        "wrong": "REGRESSED",
        "elsewhere": "INVALID",
    }

    slow = items["slow"]
    assert slow["nodeid"] == "manifests/digits.yaml::test_upgrade[slow-vs-fast-cpu-b8]"
    assert (slow["kind"], slow["against"]["name"], slow["complete"]) == ("upgrade", "fast", True)
    assert slow["terms"] == {"tolerances": {"latency": 0.03}, "gates": ["latency"], "clock": None}
    latency = next(one for one in slow["comparisons"] if one["quantity"] == "latency")
    assert latency["ratio"] == pytest.approx(8)
    assert [one["pairs"] >= 40 for one in slow["rounds"]] == [True] * len(slow["rounds"])
    assert {"pid", "versions", "executable", "threads_used"} <= set(slow["rounds"][0]["sides"]["b"])
    assert slow["layers"][0][0] == "extra"
    run = upgrades.path / "mlms-results" / "latest"
    assert all(
        (run / slow["artifacts"][f"pairs-{index}.npz"]).exists()
        for index in range(len(slow["rounds"]))
    )

    output = result.stdout.str()
    assert "slow (B) against fast (A): REGRESSED in latency" in output
    assert output.count("layers that changed") == 1
    assert "wrong (B) against fast (A): REGRESSED, B computes something else" in output
    assert "candidate elsewhere: asked for cpu, labour runs on cuda:0" in output
    assert "Traceback" not in output
    table = output[output.index("mlms: upgrades") :].splitlines()
    assert table[1] == "slow (B) against fast (A), labour"
    assert table[3].split()[:4] == ["REGRESSED", "digits-cnn", "cpu-b8", "1.00"]
    assert all(len(line) <= 100 for line in table[1 : 1 + len(items)])
    case = ElementTree.parse(upgrades.path / "junit.xml").find(".//testcase")
    assert case is not None
    properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
    assert float(properties["mlms_ratio_of_latency"] or 0) == pytest.approx(8)

    capsys.readouterr()
    judged_again(run, capsys)


WRONG = {
    "lacking": (
        "ERROR",
        "candidate lacking: 'load' raised ValueError: an operator that this version lacks (log: *",
    ),
    "dying": (
        "ERROR",
        "candidate dying: the agent (process *) ended while it did 'turn': exit status 7; its log may*",
    ),
    "killed": (
        "ERROR",
        "candidate killed: the agent (process *) ended while it did 'turn': killed by SIGKILL, as the*",
    ),
    "threaded": (
        "INVALID",
        "the baseline runs with threads of its own choice and the candidate with 7 threads, *",
    ),
}


@pytest.mark.slow
def test_a_side_that_goes_wrong_costs_its_own_item_alone_and_is_named(upgrades: Project) -> None:
    result = upgrades.run(
        "--mlms-against=fast", *(f"--mlms-stack={name}" for name in (*WRONG, "slow"))
    )
    result.assert_outcomes(failed=5)
    items = by_stack(upgrades)
    assert {name: item["verdict"] for name, item in items.items()} == {
        **{name: verdict for name, (verdict, _) in WRONG.items()},
        "slow": "REGRESSED",
    }
    for name, (_, said) in WRONG.items():
        assert fnmatch.fnmatchcase(
            items[name]["message"].splitlines()[0], f"manifests/digits.yaml:*: {said}"
        )
        assert not items[name]["complete"]
    assert "Traceback" not in result.stdout.str()

    result = upgrades.run("--mlms-against=killed", "--mlms-stack=fast", "--mlms-stack=slow")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*: baseline killed: the agent (process *) ended while it did 'turn': killed by*"] * 2
    )


@pytest.mark.slow
def test_a_stack_that_can_not_be_made_is_an_error_on_either_side(
    upgrades: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for sides in (
        ("--mlms-stack=labour==99", "--mlms-against=fast"),
        ("--mlms-stack=fast", "--mlms-against=labour==99"),
    ):
        result = upgrades.run(*sides, "--mlms-cache=cache")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(
            [
                "*stack labour==99 can't be made with Python *",
                "*No matching distribution found for labour==99*",
            ]
        )
        assert [item["verdict"] for item in upgrades.items()] == ["ERROR"]
        assert "Traceback" not in result.stdout.str()


@pytest.mark.slow
def test_a_clock_that_is_not_there_is_invalid_and_says_which_are(upgrades: Project) -> None:
    result = upgrades.run("--mlms-against=fast", "--mlms-stack=slow", "--mlms-clock=device")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*--mlms-clock device (time on the device, by its own events) isn't there: *ask for one of*"
        ]
    )
    assert by_stack(upgrades)["slow"]["verdict"] == "INVALID"


TAKEN = '''
import sys
from types import SimpleNamespace
import psutil, pynvml

class Driver:
    """A GPU that another process is on from the second reading with agents alive."""

    readings = 0
    nvmlInit = nvmlShutdown = lambda self: None

    def nvmlDeviceGetCount(self):
        return 1

    def nvmlDeviceGetUUID(self, handle):
        return "GPU-8f1c"

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        pids = [child.pid for child in psutil.Process().children()]
        self.readings += bool(pids)
        if self.readings > 1:
            pids.append(77)
        return [SimpleNamespace(pid=pid) for pid in pids]

    def __getattr__(self, name):
        return getattr(pynvml, name)

sys.modules["pynvml"] = Driver()
'''


@pytest.mark.slow
def test_a_device_that_somebody_takes_in_mid_item_makes_it_invalid(upgrades: Project) -> None:
    pytest.importorskip("pynvml")
    upgrades.pytester.makeconftest(TAKEN)
    upgrades.edit("devices: [cpu]", "devices: [cuda]")
    result = upgrades.run("--mlms-aa", "--mlms-stack=gpu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*what was measured can't be trusted; other processes were on it: 77; run it again*"]
    )
    (item,) = upgrades.items()
    assert (item["verdict"], item["clock"], item["complete"]) == ("INVALID", "device", False)
    assert len(item["rounds"]) == 2
    assert {"pairs-0.npz", "pairs-1.npz"} <= set(item["artifacts"])


def judged_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same verdicts from the pairs, from the figures alone, and others by another tolerance."""
    assert main(["judge", str(run)]) == 1
    same = capsys.readouterr().out
    assert "0 of 2 would have been decided otherwise" in same
    assert "elsewhere" not in same, "it was never measured"
    for pairs in run.glob("items/*/pairs-*.npz"):
        pairs.unlink()
    assert main(["judge", str(run / "results.jsonl")]) == 1
    recorded = capsys.readouterr().out
    assert recorded.splitlines()[:-1] == same.splitlines()
    assert (
        recorded.splitlines()[-1]
        == "2 decided from the figures of their rounds: the raw pairs are not there"
    )
    assert main(["judge", str(run), "--clock", "wall"]) == 2
    assert "another clock needs the raw pairs, pairs-N.npz" in capsys.readouterr().err


def test_judging_again_says_what_it_can_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.jsonl"
    assert main(["judge", str(file)]) == 2
    file.write_text(json.dumps({"type": "item", "kind": "accuracy"}) + "\n")
    assert main(["judge", str(tmp_path)]) == 2
    file.write_text("not\njson\n")
    assert main(["judge", str(file)]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"mlms: {file} can't be read: No such file or directory; name a run's folder, or its results.jsonl",
        f"mlms: {file} has no upgrade that was measured; it takes a run with --mlms-against or --mlms-aa",
        f"mlms: {file}:1: is not JSON; is it a run's results.jsonl?",
    ]
    with pytest.raises(SystemExit):
        main(["judge", str(file), "--tolerance", "much"])
    assert "'much' is not a share; write it as in '3 %' or 0.03" in capsys.readouterr().err


@pytest.mark.slow
def test_a_stack_against_itself_shows_the_noise_and_is_not_worse(upgrades: Project) -> None:
    result = upgrades.run("--mlms-aa", "--mlms-stack=slow")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*mlms: noise of this machine*", "slow (B) against slow (A), labour", "PASSED*cpu-b8*%*"]
    )
    assert by_stack(upgrades)["slow"]["verdict"] == "PASSED"


@pytest.mark.slow
def test_a_budget_that_is_too_small_warns_and_under_strict_fails(upgrades: Project) -> None:
    short = ("--mlms-against=fast", "--mlms-stack=slow", "--mlms-budget=0.01")
    result = upgrades.run(*short)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        ["*MlmsInconclusive: slow (B) against fast (A): INCONCLUSIVE*", "*try: --mlms-budget*"]
    )
    assert by_stack(upgrades)["slow"]["verdict"] == "INCONCLUSIVE"
    upgrades.run(*short, "--mlms-strict").assert_outcomes(failed=1)


def test_both_sides_the_same_is_an_error_before_anything_is_measured(upgrades: Project) -> None:
    result = upgrades.run("--mlms-against=slow", "--mlms-stack=slow")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "both sides of the upgrade are the stack slow; name another one" in result.stderr.str()
    result = upgrades.run("--mlms-against=twin", "--mlms-stack=slow")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*both sides are the same: twin and slow start the same interpreter*"]
    )


@pytest.mark.slow
def test_a_baseline_that_is_not_there_or_not_known_is_named(upgrades: Project) -> None:
    result = upgrades.run("--mlms-against=gone", "--mlms-stack=slow", "-rs")
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, (
        "no upgrade was judged, and none is allowed by that"
    )
    result.stdout.fnmatch_lines(["mlms: no upgrade was judged: all were skipped*"])
    result.stdout.fnmatch_lines(["*the interpreter /nowhere/python *; install it, or name another"])
    assert by_stack(upgrades)["slow"]["verdict"] == "SKIPPED"
    upgrades.run("--mlms-against=gone", "--mlms-stack=slow", "--mlms-strict").assert_outcomes(
        errors=1
    )
    result = upgrades.run("--mlms-against=fats")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--mlms-against" in result.stderr.str()
    assert "fats" in result.stderr.str()


def test_a_stack_is_either_against_itself_or_against_another(upgrades: Project) -> None:
    result = upgrades.run("--mlms-aa", "--mlms-against=fast", "--mlms-stack=slow")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--mlms-aa is each stack against itself; leave out" in result.stderr.str()


def test_upgrades_are_in_place_of_the_other_items(upgrades: Project) -> None:
    result = upgrades.run("--collect-only", "-q", "--mlms-against=fast", "--mlms-stack=slow")
    assert [line for line in result.outlines if "::" in line] == [
        "manifests/digits.yaml::test_upgrade[slow-vs-fast-cpu-b8]"
    ]
    result = upgrades.run("--collect-only", "-q", "--mlms-stack=slow")
    assert "test_upgrade" not in result.stdout.str()


@pytest.mark.parametrize(
    ("option", "word"), [("--mlms-tolerance", "much"), ("--mlms-clock", "sundial")]
)
def test_an_option_that_can_not_be_is_refused(upgrades: Project, option: str, word: str) -> None:
    result = upgrades.run(f"{option}={word}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"argument {option}: '{word}' is not " in result.stderr.str()


@pytest.mark.slow
def test_ctrl_c_between_rounds_keeps_what_was_measured_marked_as_incomplete(
    upgrades: Project,
) -> None:
    options = ["--mlms-manifests=manifests", f"--mlms-predictors={PREDICTORS}", *QUICK]
    command = [sys.executable, "-m", "pytest", *options, "--mlms-aa", "--mlms-stack=stays"]
    loads = upgrades.path / "loads"  # the third process, of the second round, stays in it
    with subprocess.Popen(command, cwd=upgrades.path, stdout=subprocess.PIPE, text=True) as run:
        end = time.monotonic() + 600
        while (
            not (loads.exists() and loads.stat().st_size > 2)
            and time.monotonic() < end
            and run.poll() is None
        ):
            time.sleep(0.05)
        agents = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=600)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert psutil.wait_procs(agents, timeout=600)[1] == []
    (item,) = upgrades.items()
    assert (item["verdict"], item["outcome"], item["complete"]) == ("ERROR", "interrupted", False)
    assert len(item["rounds"]) == 1
    assert item["rounds"][0]["figures"]["latency"][4] >= 40
    assert "mlms: results in" in output
