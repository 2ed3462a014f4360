"""Candidates that fail, in environments that are made of wheels of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from tests.support.confirmations import KEPT, write_numpy, write_predictor
from tests.support.printed import mlms_options, printed_commands
from tests.support.project import Project
from tests.support.wheels import only_wheels, share_seeds, write_wheel

assert KEPT  # what the commands import here can't be imported twice

FAULTS = {"1": "", "2": "import", "3": "load", "4": "abort", "5": "linger"}
"""The fault of each release of "pacekit"."""

STACK = """\
v{0}:
  framework: pacekit
  requirements: [pacekit=={0}.0, numpy, "beside[some]>=1,<3"]
  env: {{BESIDE: "it's here"}}
"""

REASONS = {
    "v2": "pacekit can't be imported in stack v2 *: 'hello' raised ImportError: pace.so: undefined",
    "v3": "'load' raised ValueError: an operator that this version lacks",
    "v4": "failed at its exit: killed by SIGABRT",
    "v5": "had not ended 10 s after its last answer",
}


@pytest.fixture
def made(project: Project, seeds: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """A project whose framework is a package with broken releases."""
    share_seeds(project.path / "cache", seeds)
    wheels = project.path / "wheels"
    wheels.mkdir()
    for version, fault in FAULTS.items():
        code = f"WORK = 1\nFAULT = {fault!r}"
        write_wheel(wheels, "pacekit", f"{version}.0", code=code)
    write_numpy(wheels)
    write_wheel(wheels, "beside", "2.0")
    write_predictor(project.path / "predictors")
    project.edit("onnxruntime >=1.17", "pacekit")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("[single_stream, offline]", "[single_stream]")
    project.set_thresholds()
    stacks = "".join(map(STACK.format, FAULTS))
    (project.folder / "stacks.yaml").write_text(stacks)
    monkeypatch.chdir(project.path)
    with only_wheels(wheels, monkeypatch):
        yield project


def run(project: Project, *arguments: str) -> pytest.RunResult:
    folders = ("--mlms-cache=cache", f"--mlms-predictors={project.path / 'predictors'}")
    return project.run(*folders, *arguments)


@pytest.mark.slow(seconds=100)
def test_a_candidate_that_fails_where_the_baseline_does_not_has_regressed(made: Project) -> None:
    stacks = [f"--mlms-stack={name}" for name in REASONS]
    result = run(made, "--mlms-against=v1", *stacks)
    result.assert_outcomes(failed=4)
    text = result.stdout.str()
    for item in made.items():
        name = item["stack"]["name"]
        assert item["verdict"] == "REGRESSED"
        crash = item["comparisons"][0]
        assert (crash["quantity"], crash["verdict"]) == ("crash", "REGRESSED")
        start, _, end = REASONS[name].partition("*")
        assert start in crash["lacking"]
        assert end in crash["lacking"]
        assert item["changed_packages"] == [f"pacekit 1.0 → {name[1]}.0"]
        ends = f"--good pacekit==1.0 --bad pacekit=={name[1]}.0 --quantity crash"
        assert ends in text
    assert "Traceback" not in text
    check_printed(made, text)
    result.stdout.fnmatch_lines(["REGRESSED*digits-cnn*cpu-b8*", "  crash: candidate v*"])


def check_printed(project: Project, text: str) -> None:
    """Check that each printed command runs: that of pytest finds its item, mlms finds the release.

    All of ``mlms culprit`` take what the stacks have beside the release.
    """
    culprits = []
    for words in printed_commands(text):
        if words[0] == "pytest":
            found = project.pytester.runpytest_subprocess(*words[1:], "--collect-only", "-q")
            assert found.parseoutcomes() == {"test": 1} or "1 test collected" in found.stdout.str()
        else:
            culprits.append(words)
    assert len(culprits) == len(REASONS)
    for words in culprits:
        options = mlms_options(words)
        assert options.more == ["numpy", "beside[some]<3,>=1"]
        assert options.stack in REASONS
        assert options.predictors
        assert options.cache.name == "cache"
    refused = next(words for words in culprits if "pacekit==3.0" in words)
    assert main(["bisect", *refused[2:], "--budget=600"]) == 2
    answer = json.loads(Path("bisect.json").read_text())["answer"]
    assert (answer["new"], answer["between"]) == ("3.0", ["2.0"]), "2.0 fails in another way"


@pytest.mark.slow
def test_a_candidate_that_fails_as_the_baseline_does_is_an_error(made: Project) -> None:
    result = run(made, "--mlms-against=v3", "--mlms-stack=v2")
    result.assert_outcomes(failed=1)
    (item,) = made.items()
    assert item["verdict"] == "ERROR"


@pytest.mark.slow
def test_a_stack_of_ours_that_can_not_be_imported_is_an_error_without_an_upgrade(
    made: Project,
) -> None:
    result = run(made, "--mlms-stack=v2", "--mlms-stack=v1", "-ktest_performance")
    assert result.ret == 1
    verdicts = {item["stack"]["name"]: item["verdict"] for item in made.items()}
    assert verdicts == {"v1": "PASSED", "v2": "ERROR"}
