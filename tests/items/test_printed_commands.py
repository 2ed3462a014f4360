"""Commands that an upgrade prints: each runs as it is printed, from the folder of the session."""

from __future__ import annotations

import json
import shlex
import zipfile
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from tests.support.confirmations import KEPT, write_numpy, write_predictor
from tests.support.printed import mlms_options, printed_commands
from tests.support.project import Project, sha256
from tests.support.wheels import only_wheels, share_seeds, write_wheel

assert KEPT  # what the commands import here can't be imported twice

SHIFT = """
import os

from mlms_predictors import Loaded, Tensor

OPTIONS = {"by": "int"}

def versions():
    return {"shift": os.environ.get("SHIFT", "1.0")}

def devices():
    return ["cpu"]

def load(request):
    x, y = Tensor("x", "float32", (None, 2)), Tensor("y", "float32", (None, 2))
    return Loaded(request.options.get("by", 0), request.device, request.threads, [x], [y])

def predict(loaded, arrays):
    return [arrays["x"] + loaded.model]
"""
SHIFTED = """\
name: shifted
version: 1.0.0
task: regression
models: [{{framework: shift, graph: shifted.bin, sha256: {digest}}}]
inputs: [{{name: x, type: tensor, element_type: float32}}]
outputs: [{{name: y, type: tensor}}]
"""
OF_SETTINGS = """\
good: {framework: shift, interpreter: current}
off: {framework: shift, interpreter: current, options: {by: 3}}
"""
OF_INTERPRETERS = """\
good: {framework: shift, interpreter: current}
off: {framework: shift, interpreter: current, options: {by: 3}, env: {SHIFT: "2.0"}}
"""
OF_RELEASES = """\
old: {framework: pacekit, requirements: [pacekit==1.0, numpy], env: {PACE: "1"}, options: {mode: fast}}
new: {framework: pacekit, requirements: [pacekit==3.0, numpy], env: {PACE: "1"}, options: {mode: fast}}
"""


@pytest.fixture
def own(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a folder for predictors, in which its commands run."""
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.set_thresholds()
    monkeypatch.chdir(project.path)
    return project


def run(project: Project, *options: str) -> tuple[str, str]:
    """Run pytest; return what it printed and its report of upgrades."""
    result = project.pytester.runpytest_subprocess(
        "--mlms-manifests=manifests",
        "--mlms-predictors=own",
        "--mlms-duration=0.02",
        "--mlms-cache=cache",
        "--mlms-upgrade-report=upgrade.md",
        *options,
    )
    return result.stdout.str(), Path("upgrade.md").read_text()


def commands_of_runs() -> list[list[str]]:
    """Return the commands that reproduce an item in the results of all runs; some are there."""
    commands = []
    for file in Path("mlms-results").glob("*/results.jsonl"):
        lines = map(json.loads, file.read_text().splitlines())
        commands += [shlex.split(line["reproduce"]) for line in lines if line.get("reproduce")]
    assert commands
    return commands


def shift(project: Project, stacks: str) -> None:
    """Give a project a framework of its own, a model of it, and stacks.yaml."""
    Path("own").mkdir()
    Path("own/shift.py").write_text(SHIFT)
    project.drop()
    (project.folder / "shifted.bin").write_bytes(b"x")
    (project.folder / "shifted.yaml").write_text(SHIFTED.format(digest=sha256(b"x")))
    (project.folder / "stacks.yaml").write_text(stacks)


def test_an_upgrade_of_interpreters_asks_no_index_for_the_name_of_its_framework(
    own: Project,
) -> None:
    shift(own, OF_INTERPRETERS)
    printed, report = run(own, "--mlms-stack=off", "--mlms-against=good")
    assert "A: shift 1.0" in printed
    assert "the packages of shift are none that pip lists in A" in printed
    assert "culprit" not in printed
    assert "mlms culprit" not in report


def test_an_upgrade_of_settings_says_that_no_bundle_has_them(
    own: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    shift(own, OF_SETTINGS)
    printed, report = run(own, "--mlms-stack=off", "--mlms-against=good")
    assert "B computes something else" in printed
    assert "its sides differ in settings of their stacks" in report
    assert not list(printed_commands(report))
    again = [words for words in printed_commands(printed) if words[0] == "pytest"]
    assert "--mlms-predictors=own" in again[0]
    assert main(["repro", "test_upgrade", "--mlms-predictors=own"]) == 2
    error = capsys.readouterr().err
    assert "its sides differ in options, variants or variables that no bundle can have" in error
    assert "run the item again: pytest " in error


@pytest.mark.slow
def test_commands_of_a_release_run_as_they_are_printed(
    own: Project, seeds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_seeds(own.path / "cache", seeds)
    wheels = own.path / "wheels"
    wheels.mkdir()
    for version, fault in (("1", ""), ("2", "wrong"), ("3", "wrong")):
        write_wheel(wheels, "pacekit", f"{version}.0", code=f"WORK = 1\nFAULT = {fault!r}")
    write_numpy(wheels)
    write_predictor(Path("own"))
    own.edit("onnxruntime >=1.17", "pacekit")
    (own.folder / "stacks.yaml").write_text(OF_RELEASES)
    with only_wheels(wheels, monkeypatch):
        printed, report = run(own, "--mlms-stack=new", "--mlms-against=old")
        assert "B computes something else" in printed
        commands = list(printed_commands(report))
        assert [words[:2] for words in commands] == [
            ["mlms", "repro"],
            ["mlms", "repro"],
            ["mlms", "reduce"],
            ["mlms", "culprit"],
        ]
        assert main(commands[0][1:]) == 0
        assert zipfile.is_zipfile("repro.zip")
        for words in commands[1:3]:  # this predictor reads no ONNX, which both need
            assert mlms_options(words).predictors == [Path("own")]
        (culprit,) = [words for words in printed_commands(printed) if words[1] == "culprit"]
        assert culprit == commands[-1]
        assert main([*culprit[1:], "--out=found"]) == 0
        assert "pacekit 2.0" in Path("found/report.md").read_text()
        for words in commands_of_runs():
            found = own.pytester.runpytest_subprocess(*words[1:], "--collect-only", "-q")
            assert "1 test collected" in found.stdout.str()
