"""Bisections of releases of a package of ours, each installed and judged in turns."""

from __future__ import annotations

import argparse
import json
import math
import platform
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_mlms.cli import bisect as command
from pytest_mlms.cli.main import main
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.question import read_point
from pytest_mlms.explain.bisect.record import hold_record
from tests.support.bisections import Release, Releases, write_releases
from tests.support.locks import line_of, write_lock
from tests.support.project import HANG_GUARD, Project
from tests.support.wheels import offline, only_wheels, share_seeds, write_wheel  # noqa: F401

WIDTH = 100
BASE = Release(100)
SLOWER = Release(120)
HISTORY = {
    "0.8": Release(96),
    "0.9": Release(98),
    "1.0": BASE,
    "1.1": Release(100, broken=True),
    "1.2": BASE,
    "1.3": SLOWER,
    "1.4": SLOWER,
    "1.5": BASE,
    "1.6": Release(100, "wrong"),
    "1.7": Release(100, "wrong"),
    "1.8": Release(100, "die"),
}
"""The releases of the package. Tests bisect short parts, and share the environments."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, seeds: Path) -> Iterator[Path]:
    """A folder with the wheels of all releases, and the cache with the environments."""
    folder = tmp_path_factory.mktemp("shared")
    share_seeds(folder / "cache", seeds)
    wheels = folder / "wheels"
    write_releases(wheels, HISTORY)
    for version in ("1.0", "2.0"):
        write_wheel(wheels, "sounds", version)
    yield folder
    shutil.rmtree(folder / "cache")


@pytest.fixture
def releases(project: Project, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    monkeypatch.chdir(project.path)
    with only_wheels(shared / "wheels", monkeypatch):
        yield Releases(project, shared / "cache")


def check_output(capfd: pytest.CaptureFixture[str], releases: Releases) -> str:
    """Check what each bisection keeps to; return what it printed."""
    text = capfd.readouterr().out
    assert max(map(len, text.splitlines())) <= WIDTH
    record = releases.record
    probes = [probe for probe in record["probes"] if probe["run"]]
    assert len(probes) <= math.log2(len(record["releases"])) + 4
    results = releases.project.path / "mlms-results"
    for probe in probes:
        assert (results / f"bisect-{probe['run']}" / "results.jsonl").is_file()
    return text


@pytest.mark.slow
def test_a_slow_down_is_found_beside_a_release_that_cannot_be_installed(
    releases: Releases, capfd: pytest.CaptureFixture[str]
) -> None:
    assert releases.bisect("1.0", "1.3", "--quantity=latency") == 0
    text = check_output(capfd, releases)
    assert "1.1: can't be installed here, and is left out" in text
    assert "latency became worse in pacekit 1.3: ×1.200 (1.200 to 1.200)" in text
    assert "ms → 120 ms" in text
    assert "common (MatMul)" not in text  # it didn't move
    assert "extra (MatMul)" in text
    answer = releases.answer
    assert (answer["kind"], answer["old"], answer["new"]) == ("found", "1.2", "1.3")
    stacks = releases.record["stacks"]
    assert "pacekit==1.3" in stacks[answer["after"]]["packages"]
    assert releases.bisect("1.0", "1.3", "--quantity=latency", "--resume") == 0
    assert "latency became worse in pacekit 1.3" in capfd.readouterr().out


@pytest.mark.slow
def test_wrong_outputs_are_found_without_being_asked_for(
    releases: Releases, capfd: pytest.CaptureFixture[str]
) -> None:
    assert releases.bisect("1.5", "1.7") == 0
    text = check_output(capfd, releases)
    assert "agreement became worse in pacekit 1.6" in text
    assert releases.record["quantity"] == "agreement"


@pytest.mark.slow
def test_a_crash_is_found_with_its_error(
    releases: Releases, capfd: pytest.CaptureFixture[str]
) -> None:
    assert releases.bisect("1.6", "1.8", "--quantity=crash") == 0
    text = check_output(capfd, releases)
    assert "pacekit 1.8 crashes, and 1.7 does not" in text
    assert "exit status 7" in text


@pytest.mark.slow
def test_a_drift_has_no_culprit(releases: Releases, capfd: pytest.CaptureFixture[str]) -> None:
    assert releases.bisect("0.8", "1.0", "--quantity=latency") == 2
    assert "gradual, or not monotone" in check_output(capfd, releases)


@pytest.mark.slow
def test_a_slow_down_that_is_undone_again_leaves_the_ends_alike(
    releases: Releases, capfd: pytest.CaptureFixture[str]
) -> None:
    assert releases.bisect("1.2", "1.5") == 1
    text = check_output(capfd, releases)
    assert "the ends don't differ in latency: PASSED, latency ×1.000" in text
    assert "--good or --bad inside" in text


@pytest.mark.slow
def test_an_interrupted_bisection_goes_on_where_it_was(
    releases: Releases, capfd: pytest.CaptureFixture[str]
) -> None:
    ends = ("--good=pacekit==1.2", "--bad=pacekit==1.3")
    words = releases.arguments(*ends, "--quantity=latency")
    program = psutil.Popen([sys.executable, "-m", "pytest_mlms", *words])
    while not probes_of(releases.file) and program.poll() is None:
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
    assert releases.answer["new"] == "1.3"
    check_output(capfd, releases)


def probes_of(path: Path) -> list[Any]:
    if not path.exists():
        return []
    probes: list[Any] = json.loads(path.read_text())["probes"]
    return probes


@pytest.mark.slow(seconds=70)
def test_the_package_and_its_release_are_found_between_two_lock_files(
    releases: Releases, capfd: pytest.CaptureFixture[str]
) -> None:
    write_lock_of("old.lock", "1.2", "1.0")
    write_lock_of("new.lock", "1.4", "2.0")
    words = ("--good=old.lock", "--bad=new.lock", "--quantity=latency")
    assert main(releases.arguments(*words)) == 0
    text = check_output(capfd, releases)
    assert "sounds 1.0 → 2.0" in text
    assert "latency became worse in pacekit 1.3: ×1.200" in text
    record = releases.record
    assert record["culprits"] == ["pacekit"]
    packages = record["stacks"][record["answer"]["after"]]["packages"]
    assert "sounds==1.0" in packages


def write_lock_of(name: str, pacekit: str, sounds: str) -> None:
    """Write the lock file of a stack that was measured with these versions."""
    packages = ("numpy==99.0", f"pacekit=={pacekit}", f"sounds=={sounds}")
    line = line_of(packages=packages, framework="pacekit", python=platform.python_version())
    write_lock(Path(name), read_point("manifests/digits.yaml::test_upgrade").loaded, line)


USAGE = 3
ENDS = ("--good=onnxruntime==1.20.1", "--bad=onnxruntime==1.31.1")
POINT = "manifests/digits.yaml::test_upgrade[cpu-b8]"


@pytest.mark.usefixtures("offline")
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


@pytest.mark.usefixtures("offline")
def test_a_record_that_another_bisection_writes_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.path)
    with hold_record(Path("bisect.json")):
        assert main(["bisect", POINT, *ENDS]) == USAGE
    assert "bisect.json is in use by" in capsys.readouterr().err


def test_the_releases_of_a_stack_that_is_an_interpreter_have_its_python() -> None:
    stack = Stack("old", "onnxruntime", interpreter=sys.executable, env=(("A", "1"),))
    options = argparse.Namespace(stack="old", predictors=[])
    like = command._like({"old": stack}, options)
    assert like is not None
    assert (like.interpreter, like.env) == (None, stack.env)
    assert f"{platform.python_version()}.".startswith(f"{like.python}.")
