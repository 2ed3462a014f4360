"""The control of a host: its files, the items of its manifest, and its series."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.control import control_files
from pytest_mlms.keep.history.queries import series_by_id, series_names
from pytest_mlms.keep.history.store import open_history
from pytest_mlms.manifest.load import load
from pytest_mlms.provide.stacks.schema import load_stacks
from tests.support.histories import write_run
from tests.support.project import Project
from tests.support.wheels import offline, write_wheel  # noqa: F401

STACKS = "pinned: {framework: onnxruntime, interpreter: current}\n"


@pytest.fixture
def control(project: Project) -> Path:
    """A project whose manifest is a control, and has its stack beside it."""
    project.manifest.write_text(f"{project.manifest.read_text()}\ncontrol: pinned\n")
    (project.folder / "stacks.yaml").write_text(STACKS)
    return project.folder


def collected(project: Project, *arguments: str) -> list[str]:
    result = project.run("--collect-only", "-q", *arguments)
    return [line for line in result.outlines if "::" in line]


@pytest.mark.usefixtures("control")
def test_a_control_runs_on_its_own_stack_whatever_others_are_chosen(project: Project) -> None:
    other = project.fork("other")
    other.manifest.rename(other.folder / "other.yaml")
    items = collected(project, "--mlms-stack=mxnet==1.9.1", "-kb8")
    assert items == [
        "manifests/digits.yaml::test_performance[pinned-cpu-b8-single_stream]",
        "manifests/digits.yaml::test_performance[pinned-cpu-b8-offline]",
    ]


@pytest.mark.usefixtures("control")
def test_upgrades_and_accuracy_leave_a_control_out(project: Project) -> None:
    assert not collected(project, "--mlms-aa")
    assert all("test_performance" in item for item in collected(project))


def test_a_control_without_its_stack_is_an_error_with_its_line(
    project: Project, control: Path
) -> None:
    (control / "stacks.yaml").unlink()
    result = project.run("--collect-only")
    result.stdout.fnmatch_lines(["manifests/digits.yaml:*: there is no stack 'pinned'; declare*"])


def test_the_series_of_a_control_are_marked(tmp_path: Path) -> None:
    history = open_history(tmp_path / "history.sqlite")
    add_run(history, write_run(tmp_path, 1, control=True))
    add_run(history, write_run(tmp_path, 2))
    with history.connect() as connection:
        found = series_by_id(connection, series_names(connection, "latency_p50"))
    assert sorted(series.control for series in found) == [False, True]


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_a_control_is_written_once_with_its_packages_pinned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, version in (("onnxruntime", "1.40.0"), ("onnxruntime", "1.41.0"), ("numpy", "2.9")):
        write_wheel(tmp_path / "wheels", name, version)
    manifests = tmp_path / "manifests"
    command = ["history", "control", str(manifests), f"--mlms-cache={tmp_path / 'cache'}"]
    assert main(command) == 2
    manifests.mkdir()
    assert main(command) == 1
    assert main([*command, "--write"]) == 0
    control = control_files(manifests)
    (stack,) = load_stacks(control.folder / "stacks.yaml").values()
    assert stack.requirements == ("onnxruntime==1.41.0", "numpy==2.9")
    assert "onnxruntime==1.41.0\n" in (control.folder / "control.lock").read_text()
    assert load(control.manifest).manifest.control == stack.name
    capsys.readouterr()
    assert main([*command, f"--history={tmp_path / 'none.sqlite'}"]) == 0
    told = capsys.readouterr()
    assert told.out == f"{control.manifest} is a control\n"
    assert "there is no history" in told.err
    assert main([*command, "--write"]) == 2
    assert "there is a control already; remove" in capsys.readouterr().err
