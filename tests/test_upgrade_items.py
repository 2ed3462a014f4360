"""Upgrades as pytest items: stacks that differ by their environment, in the labour predictor."""

from __future__ import annotations

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

from conftest import PREDICTORS, Project
from pytest_mlms.cli import main

STACKS = """
slow: {framework: labour, interpreter: current, env: {LABOUR_WORK: "8"}}
fast: {framework: labour, interpreter: current, env: {LABOUR_WORK: "1"}}
wrong: {framework: labour, interpreter: current, env: {LABOUR_WORK: "1", LABOUR_FAULT: wrong}}
elsewhere: {framework: labour, interpreter: current, env: {LABOUR_FAULT: device}}
calm: {framework: labour, interpreter: current, env: {LABOUR_SLEEP: "0.02", LABOUR_SLOW: "1"}}
twin: {framework: labour, interpreter: current, env: {LABOUR_WORK: "8"}}
gone: {framework: labour, interpreter: /nowhere/python}
"""

QUICK = ("--mlms-duration=0.01", "--mlms-budget=3600", "--mlms-tolerance=50%")


@pytest.fixture
def upgrades(project: Project) -> Project:
    project.edit("onnxruntime >=1.17", "labour")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    text = project.manifest.read_text()
    project.manifest.write_text(text[: text.index("thresholds:")])
    (project.folder / "stacks.yaml").write_text(STACKS)
    return project


def by_stack(project: Project) -> dict[str, dict[str, Any]]:
    return {item["stack"]["name"]: item for item in project.items()}


@pytest.mark.slow
def test_upgrades_are_judged_shown_recorded_and_can_be_judged_again(
    upgrades: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    stacks = [f"--mlms-stack={name}" for name in ("slow", "wrong", "elsewhere")]
    result = upgrades.run("--mlms-against=fast", *stacks, *QUICK, "--junitxml=junit.xml", "-rA")
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
    assert slow["terms"] == {"tolerances": {"latency": 0.5}, "gates": ["latency"], "clock": None}
    latency = next(one for one in slow["comparisons"] if one["quantity"] == "latency")
    assert latency["ratio"] > 2
    assert [one["pairs"] >= 40 for one in slow["rounds"]] == [True] * len(slow["rounds"])
    assert {"pid", "versions", "executable", "threads_used"} <= set(slow["rounds"][0]["sides"]["b"])
    assert slow["layers"][0][0] == "extra"
    run = upgrades.path / "mlms-results" / "latest"
    assert all((run / slow["artifacts"][f"pairs-{index}.npz"]).exists() for index in range(len(slow["rounds"])))

    output = result.stdout.str()
    assert "slow (B) against fast (A): REGRESSED in latency" in output
    assert output.count("layers that moved") == 1
    assert "wrong (B) against fast (A): REGRESSED, B computes something else" in output
    assert "candidate elsewhere: asked for cpu, labour runs on cuda:0" in output
    assert "Traceback" not in output
    table = output[output.index("mlms: upgrades") :].splitlines()
    assert all(len(line) <= 100 for line in table[1 : 1 + len(items)])
    case = ElementTree.parse(upgrades.path / "junit.xml").find(".//testcase")
    assert case is not None
    properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
    assert float(properties["mlms_ratio_of_latency"] or 0) > 2

    capsys.readouterr()
    judged_again(run, capsys)


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
    assert recorded.splitlines()[-1] == "2 decided from the figures of their rounds: the raw pairs are not there"
    assert main(["judge", str(run), "--clock", "wall"]) == 2
    assert "another clock needs the raw pairs, pairs-N.npz" in capsys.readouterr().err


def test_judging_again_says_what_it_can_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    result = upgrades.run("--mlms-aa", "--mlms-stack=calm", *QUICK)
    result.assert_outcomes(passed=1, warnings=result.parseoutcomes().get("warnings", 0))
    result.stdout.fnmatch_lines(["*mlms: noise of this machine*", "*calm-aa-cpu-b8*%*"])
    assert by_stack(upgrades)["calm"]["verdict"] != "REGRESSED"


@pytest.mark.slow
def test_a_budget_that_is_too_small_warns_and_under_strict_fails(upgrades: Project) -> None:
    short = ("--mlms-against=fast", "--mlms-stack=slow", "--mlms-duration=0.01", "--mlms-budget=0.01")
    result = upgrades.run(*short)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*MlmsInconclusive: slow (B) against fast (A): INCONCLUSIVE*", "*try: --mlms-budget*"])
    assert by_stack(upgrades)["slow"]["verdict"] == "INCONCLUSIVE"
    upgrades.run(*short, "--mlms-strict").assert_outcomes(failed=1)


def test_both_sides_the_same_is_an_error_before_anything_is_measured(upgrades: Project) -> None:
    result = upgrades.run("--mlms-against=slow", "--mlms-stack=slow", *QUICK)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "both sides of the upgrade are the stack slow; name another one" in result.stderr.str()
    result = upgrades.run("--mlms-against=twin", "--mlms-stack=slow", *QUICK)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*both sides are the same: twin and slow start the same interpreter*"])


@pytest.mark.slow
def test_a_baseline_that_is_not_there_or_not_known_is_named(upgrades: Project) -> None:
    result = upgrades.run("--mlms-against=gone", "--mlms-stack=slow", *QUICK, "-rs")
    result.assert_outcomes(skipped=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, "no upgrade was judged, and none is allowed by that"
    result.stdout.fnmatch_lines(["mlms: no upgrade was judged: all were skipped*"])
    result.stdout.fnmatch_lines(["*the interpreter /nowhere/python *; install it, or name another"])
    assert by_stack(upgrades)["slow"]["verdict"] == "SKIPPED"
    upgrades.run("--mlms-against=gone", "--mlms-stack=slow", *QUICK, "--mlms-strict").assert_outcomes(errors=1)
    result = upgrades.run("--mlms-against=fats", *QUICK)
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


@pytest.mark.parametrize(("option", "word"), [("--mlms-tolerance", "much"), ("--mlms-clock", "sundial")])
def test_an_option_that_can_not_be_is_refused(upgrades: Project, option: str, word: str) -> None:
    result = upgrades.run(f"{option}={word}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"argument {option}: '{word}' is not " in result.stderr.str()


@pytest.mark.slow
def test_ctrl_c_between_rounds_keeps_what_was_measured_marked_as_incomplete(upgrades: Project) -> None:
    with upgrades.manifest.open("a") as file:  # a gate that 40 calls can't decide, so there are always six rounds
        file.write("thresholds: {upgrade: {latency_p95: 8 %}}\n")
    options = ["--mlms-manifests=manifests", f"--mlms-predictors={PREDICTORS}", *QUICK]
    command = [sys.executable, "-m", "pytest", *options, "--mlms-aa", "--mlms-stack=calm"]
    with subprocess.Popen(command, cwd=upgrades.path, stdout=subprocess.PIPE, text=True) as run:
        folder = upgrades.path / "mlms-results"
        end = time.monotonic() + 240
        while not list(folder.glob("*/items/*/pairs-1.npz")) and time.monotonic() < end and run.poll() is None:
            time.sleep(0.05)
        agents = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=240)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert psutil.wait_procs(agents, timeout=60)[1] == []
    (item,) = upgrades.items()
    assert (item["verdict"], item["outcome"], item["complete"]) == ("ERROR", "interrupted", False)
    assert 1 <= len(item["rounds"]) < 6
    assert item["rounds"][0]["figures"]["latency"][4] >= 40
    assert "mlms: results in" in output
