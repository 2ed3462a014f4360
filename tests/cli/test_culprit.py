"""The whole way from a regression to a report: releases of a package of ours."""

from __future__ import annotations

import argparse
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from pytest_mlms.cli.culprit import attach_bundle
from pytest_mlms.cli.main import main
from pytest_mlms.explain.bisect.question import End, Question
from pytest_mlms.explain.bisect.record import Record
from pytest_mlms.explain.repro.archive import write_bundle
from pytest_mlms.explain.repro.items import FoundItem
from pytest_mlms.show.report.upgrade_report import Evidence
from tests.support.bisections import Release, Releases, write_releases
from tests.support.bundles import bundle_of_matrix
from tests.support.project import Project
from tests.support.wheels import offline, only_wheels, share_seeds  # noqa: F401

USAGE = 3
POINT = "manifests/digits.yaml::test_upgrade[cpu-b8]"
FOLDER = Path("culprit-digits-cpu-b8")
HISTORY = {"1.0": Release(100), "1.1": Release(120), "1.2": Release(100)}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, seeds: Path) -> Iterator[Path]:
    """A folder with the wheels of all releases, and the cache with the environments."""
    folder = tmp_path_factory.mktemp("shared")
    share_seeds(folder / "cache", seeds)
    write_releases(folder / "wheels", HISTORY)
    yield folder
    shutil.rmtree(folder / "cache")


@pytest.fixture
def releases(project: Project, shared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Releases]:
    monkeypatch.chdir(project.path)
    with only_wheels(shared / "wheels", monkeypatch):
        yield Releases(project, shared / "cache")


def arguments(releases: Releases, *words: str) -> list[str]:
    """Return the arguments of the command for these options."""
    _, *rest = releases.arguments(*words)
    return ["culprit", *rest]


@pytest.mark.slow(seconds=60)
def test_one_command_goes_from_a_regression_to_a_report(
    releases: Releases, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--good=pacekit==1.0", "--bad=pacekit==1.1", "--quantity=latency")
    assert main(arguments(releases, *words)) == 0
    text = capfd.readouterr().out
    assert "latency became worse in pacekit 1.1: ×1.200" in text
    assert text.endswith(f"the report, to read and to send: {FOLDER}/report.md\n")
    report = (FOLDER / "report.md").read_text()
    assert report.startswith("# `pacekit 1.1`: latency ×1.200 (1.200 to 1.200) against `1.0`\n")
    assert "latency became worse in pacekit 1.1: ×1.200" in report
    assert "`repro.zip` is attached." in report
    assert "The bundle has the whole model. Not reduced: " in report
    assert "Replayed on this machine: " in report
    assert str(releases.project.path) not in report
    assert zipfile.is_zipfile(FOLDER / "repro.zip")
    check_resumed(releases, words, report, capfd)


def check_resumed(
    releases: Releases, words: tuple[str, ...], report: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Check that what is finished is neither measured nor made again."""
    made = (FOLDER / "repro.zip").stat().st_mtime_ns
    assert main(arguments(releases, *words, "--resume")) == 0
    assert "making the bundle" not in capfd.readouterr().out
    assert (FOLDER / "repro.zip").stat().st_mtime_ns == made
    assert (FOLDER / "report.md").read_text() == report


@pytest.mark.slow
def test_where_the_ends_do_not_differ_the_report_says_so(
    releases: Releases, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("--good=pacekit==1.0", "--bad=pacekit==1.2", "--out=here")
    assert main(arguments(releases, *words)) == 1
    assert capfd.readouterr().out.endswith("to send: here/report.md\n")
    report = Path("here/report.md").read_text()
    assert "the ends don't differ in latency" in report
    assert "There is no bundle, as the ends are not shown to differ." in report
    assert not Path("here/repro.zip").exists()


ENDS = ("--good=onnxruntime==1.20.1", "--bad=onnxruntime==1.31.1")


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([POINT], "required: --good, --bad"),
        ([POINT, *ENDS, "--quantity=speed"], "'speed' is none that upgrades compare"),
        ([POINT, *ENDS], "no release of onnxruntime that is"),
        ([POINT, *ENDS, "--resume"], "no release of onnxruntime that is"),
        ([POINT, *ENDS, "--reduce-budget=0"], "is no number of seconds above 0"),
        (["manifests/digits.yaml", *ENDS], "it has cpu-b1, cpu-b8, cpu-b64"),
        ([POINT, *ENDS, "--out=manifests/digits.yaml"], "can't be made: File exists"),
    ],
)
def test_wrong_use_has_the_status_of_bisect_and_leaves_no_file(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(project.path)
    try:
        status = main(["culprit", *words])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == USAGE
    assert problem in capsys.readouterr().err
    assert not list(FOLDER.glob("[!.]*"))


@pytest.mark.usefixtures("offline")
def test_files_of_an_earlier_search_are_renamed(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project.path)
    FOLDER.mkdir()
    (FOLDER / "report.md").write_text("earlier")
    assert main(["culprit", POINT, *ENDS]) == USAGE
    assert f"{FOLDER}/report.md was there; it is {FOLDER}/report-" in capsys.readouterr().err
    (kept,) = FOLDER.glob("[!.]*")
    assert kept.read_text() == "earlier"


def test_ctrl_c_after_the_search_prints_the_command_that_goes_on(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(path: Path) -> Record:
        raise KeyboardInterrupt

    monkeypatch.chdir(project.path)
    culprit = import_module("pytest_mlms.cli.culprit")  # pytester makes modules anew, not packages
    monkeypatch.setattr(culprit, "bisect", lambda options: 0)
    record = import_module("pytest_mlms.explain.bisect.record")
    monkeypatch.setattr(record, "load_record", interrupt)
    monkeypatch.setattr("sys.argv", ["mlms", "culprit", POINT, *ENDS])
    assert main(["culprit", POINT, *ENDS]) == 130
    *_, told, command, last = capsys.readouterr().err.splitlines()
    assert told == f"mlms: {FOLDER} has what was found so far; go on with:"
    assert command == f"mlms:   mlms culprit '{POINT}' {' '.join(ENDS)} --resume"
    assert last == "mlms: interrupted"


FOUND = FoundItem(Path("no-run"), {})


def attached(path: Path) -> Evidence:
    """Return what a bundle of an earlier search tells."""
    end = End("x")
    question = Question("m.yaml", "x", "cpu", 8, {}, None, end, end, None, None, (), "x")
    evidence = attach_bundle(FOUND, Record(question), path, argparse.Namespace())
    return replace(evidence, bisection=None)


def test_a_finished_bundle_tells_what_was_found(tmp_path: Path) -> None:
    notes = (
        "It was seen on a machine.",
        "In the whole model: first departing layer: pool1 (MaxPool)",
        "Reduced to 1 of 9 nodes (MaxPool), batch 1 of 4",
        "Replayed where it was made: outputs differ",
    )
    path = tmp_path / "repro.zip"
    write_bundle(replace(bundle_of_matrix(tmp_path), notes=notes), path)
    assert attached(path) == Evidence(
        bundle="repro.zip",
        departing="pool1 (MaxPool)",
        reduced="1 of 9 nodes (MaxPool), batch 1 of 4",
        checked="outputs differ",
    )


def test_a_bundle_that_lacked_a_package_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = (
        "Not reduced: this needs onnx: pip install 'onnx>=1.22'",
        "Replayed where it was made: outputs differ",
    )
    path = tmp_path / "repro.zip"
    write_bundle(replace(bundle_of_matrix(tmp_path), notes=notes), path)
    attached(path)
    assert capsys.readouterr().out == "making the bundle\n"


def test_what_is_no_bundle_is_told_and_is_no_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "repro.zip"
    path.write_text("not a zip")
    found = attached(path)
    assert found.bundle == ""
    assert "is no bundle that can be read" in found.notes[0]
    assert "mlms: there is no bundle: " in capsys.readouterr().err
