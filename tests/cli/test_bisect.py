"""Bisections of twelve releases of a package of ours, each installed and judged in turns."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_mlms.cli.main import main
from tests.support.bisections import BASE, RELEASES, Releases, options_of_pytest
from tests.support.project import HANG_GUARD, Project
from tests.support.wheels import offline, write_wheel  # noqa: F401

pytestmark = pytest.mark.usefixtures("offline")

Make = Callable[..., Releases]

SLOWER = 108
COUNT = len(RELEASES)
WIDTH = 100


@pytest.fixture
def make(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("PYTEST_ADDOPTS", options_of_pytest())

    def made(**planted: Any) -> Releases:
        return Releases(project, tmp_path / "wheels", **planted)

    return made


def check_output(capfd: pytest.CaptureFixture[str], releases: Releases) -> str:
    """Check what each bisection keeps to; return what it printed."""
    text = capfd.readouterr().out
    assert max(map(len, text.splitlines())) <= WIDTH
    probes = [probe for probe in releases.record["probes"] if probe["run"]]
    assert len(probes) <= math.log2(COUNT) + 4
    results = releases.project.path / "mlms-results"
    for probe in probes:
        assert (results / f"bisect-{probe['run']}" / "results.jsonl").is_file()
    return text


@pytest.mark.slow
def test_a_slow_down_is_found_beside_a_release_that_cannot_be_installed(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    releases = make(work=[BASE] * 7 + [SLOWER] * 5, broken=["1.6"])
    assert releases.bisect("--quantity=latency") == 0
    text = check_output(capfd, releases)
    assert "1.6: can't be installed here, and is left out" in text
    assert "latency became worse in pacekit 1.8: ×1.080 (1.080 to 1.080)" in text
    assert "ms → 108 ms" in text
    assert "common (MatMul)" not in text  # it didn't move
    assert "extra (MatMul)" in text
    answer = releases.answer
    assert (answer["kind"], answer["old"], answer["new"]) == ("found", "1.7", "1.8")
    stacks = releases.record["stacks"]
    assert "pacekit==1.8" in stacks[answer["after"]]["packages"]
    again = releases.bisect("--quantity=latency", "--resume")
    assert again == 0
    assert "latency became worse in pacekit 1.8" in capfd.readouterr().out


@pytest.mark.slow
def test_wrong_outputs_are_found_without_being_asked_for(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = dict.fromkeys(RELEASES[4:], "wrong")
    releases = make(faults=wrong)
    assert releases.bisect() == 0
    text = check_output(capfd, releases)
    assert "agreement became worse in pacekit 1.5" in text
    assert releases.record["quantity"] == "agreement"


@pytest.mark.slow
def test_a_crash_is_found_with_its_error(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    releases = make(faults={**dict.fromkeys(RELEASES[8:], "die"), "1.3": "load"})
    assert releases.bisect("--quantity=crash") == 0
    text = check_output(capfd, releases)
    assert "pacekit 1.9 crashes, and 1.8 does not" in text
    assert "exit status 7" in text


@pytest.mark.slow
def test_a_drift_has_no_culprit(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    releases = make(work=range(BASE, BASE + COUNT))
    assert releases.bisect("--quantity=latency") == 2
    assert "gradual, or not monotone" in check_output(capfd, releases)


@pytest.mark.slow
def test_a_slow_down_that_is_undone_again_leaves_the_ends_alike(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    releases = make(work=[BASE] * 3 + [SLOWER] * 5 + [BASE] * 4)
    assert releases.bisect() == 1
    text = check_output(capfd, releases)
    assert "the ends don't differ in latency: PASSED, latency ×1.000" in text
    assert "--good or --bad inside" in text


@pytest.mark.slow
def test_an_interrupted_bisection_goes_on_where_it_was(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    releases = make(work=[BASE] * 10 + [SLOWER] * 2)
    words = ["bisect", "manifests/digits.yaml::test_upgrade", "--quantity=latency"]
    words += ["--good=pacekit==1.1", "--bad=pacekit==1.12", *releases.words]
    program = psutil.Popen([sys.executable, "-m", "pytest_mlms", *words])
    while len(probes_of(releases.file)) < 2 and program.poll() is None:
        time.sleep(0.05)
    started = program.children(recursive=True)
    program.send_signal(signal.SIGINT)
    assert program.wait(HANG_GUARD) == 130
    _, left = psutil.wait_procs(started, timeout=60)
    assert not left
    error = capfd.readouterr().err
    assert "bisect.json has what was judged so far; go on with:" in error
    assert "--resume" in error
    kept = probes_of(releases.file)
    assert main([*words, "--resume"]) == 0
    assert probes_of(releases.file)[: len(kept)] == kept
    assert releases.answer["new"] == "1.11"
    check_output(capfd, releases)


def probes_of(path: Path) -> list[Any]:
    if not path.exists():
        return []
    probes: list[Any] = json.loads(path.read_text())["probes"]
    return probes


@pytest.mark.slow
def test_the_package_and_its_release_are_found_between_two_lock_files(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    releases = make(work=[BASE] * 5 + [SLOWER] * 7)
    for name in ("colours", "shapes", "sounds"):
        for version in ("1.0", "2.0"):
            write_wheel(releases.wheels, name, version)
    for name, version, others in (("old", "1.2", "1.0"), ("new", "1.9", "2.0")):
        write_lock(releases, name, version, others)
    capfd.readouterr()
    assert releases.command("--good=old.lock", "--bad=new.lock", "--quantity=latency") == 0
    text = capfd.readouterr().out
    assert "sounds 1.0 → 2.0" in text
    assert "latency became worse in pacekit 1.6: ×1.080" in text
    record = releases.record
    assert record["culprits"] == ["pacekit"]
    packages = record["stacks"][record["answer"]["after"]]["packages"]
    assert "colours==1.0" in packages
    assert max(map(len, text.splitlines())) <= WIDTH


def write_lock(releases: Releases, name: str, version: str, others: str) -> None:
    """Measure a stack of these packages, and lock it as NAME.lock."""
    requirements = [f"pacekit=={version}", "numpy"]
    requirements += [f"{other}=={others}" for other in ("colours", "shapes", "sounds")]
    stack = {"framework": "pacekit", "requirements": requirements}
    project = releases.project
    (project.folder / "stacks.yaml").write_text(json.dumps({"pacekit": stack}))
    result = project.run("--mlms-stack=pacekit", "-ktest_performance", *releases.folders)
    result.assert_outcomes(passed=1)
    assert main(["lock", "write", f"--file={project.path / name}.lock"]) == 0


USAGE = 3
ENDS = ("--good=onnxruntime==1.20.1", "--bad=onnxruntime==1.31.1")
POINT = "manifests/digits.yaml::test_upgrade[cpu-b8]"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([POINT], "required: --good, --bad"),
        ([POINT, *ENDS, "--quantity=speed"], "'speed' is none that upgrades compare; write one of"),
        ([POINT, *ENDS, "--tolerance=3%"], "--tolerance is of one quantity; name it with"),
        ([POINT, *ENDS, "--quantity=crash", "--tolerance=1%"], "crash has no tolerance to set"),
        ([POINT, *ENDS, "--tolerance=much"], "is not a share"),
        ([POINT, *ENDS, "--probes=1"], "need 2 or more"),
        ([POINT, *ENDS, "--budget=nan"], "is no number of seconds above 0"),
        ([POINT, *ENDS, "--unknown"], "unrecognized arguments: --unknown"),
        ([POINT, *ENDS, "--resume"], "there is no bisect.json to go on with"),
        ([POINT, "--good=onnxruntime", "--bad=onnxruntime==1.2"], "is no release"),
        ([POINT, "--good=numpy==1.26.4", "--bad=numpy==2.0.0"], "name the framework's release"),
        ([POINT, "--good=a.lock", "--bad=onnxruntime==1.2"], "name two of one kind"),
        ([POINT, "--good=a.lock", "--bad=b.lock"], "there is no a.lock"),
        ([POINT, "--good=a.lock", "--bad=b.lock", "--with=numpy"], "leave out --with"),
        (["nowhere.yaml::test_upgrade", *ENDS], "there is no nowhere.yaml below"),
        (["manifests/digits.yaml", *ENDS], "it has cpu-b1, cpu-b8, cpu-b64"),
        ([POINT, *ENDS], "no release of onnxruntime that is"),
        ([POINT, "--good=onnxruntime==1.2", "--bad=onnxruntime==1.1"], "exchange them"),
    ],
)
def test_wrong_use_has_an_exit_status_of_its_own(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(project.path)
    try:
        status = main(["bisect", *words])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == USAGE
    assert problem in capsys.readouterr().err
    assert not Path("bisect.json").exists()
