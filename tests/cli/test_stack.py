"""The command ``mlms stack``, in a folder with stacks of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.stacks.environments import release
from tests.support.wheels import offline, write_wheel  # noqa: F401

pytestmark = pytest.mark.usefixtures("offline")

STACKS = """
mine: {framework: onnxruntime, requirements: [tiny>=0.5], lock: mine.lock, threads: 2, env: {A: b}}
free: {framework: onnxruntime, requirements: [tiny]}
broken: {framework: onnxruntime, requirements: [tiny==9]}
nowhere: {framework: onnxruntime, python: "3.99", requirements: [tiny]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_wheel(tmp_path / "wheels", "tiny", "1.0")
    (tmp_path / "stacks.yaml").write_text(STACKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLMS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["stack", *arguments]) == 0
    return capsys.readouterr().out


def test_the_list_has_what_is_declared_and_what_it_lacks(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = {line.split()[0]: line for line in said(capsys, "list").splitlines()}
    assert list(lines) == ["stack", "here", "mine", "free", "broken", "nowhere"]
    assert "interpreter current" in lines["here"]
    assert "tiny" in lines["free"]
    assert "not made, Python" in lines["free"]
    assert "no Python 3.99 on PATH" in lines["nowhere"]


def test_a_list_without_a_declaration_says_where_it_was_looked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert main(["stack", "list"]) == 0
    assert (
        f"no stacks.yaml declares any in {Path.cwd()}; --mlms-manifests DIR"
        in capsys.readouterr().err
    )
    assert main(["stack", "list", "--mlms-manifests=.."]) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize("action", ["show", "remove"])
def test_a_bare_name_that_is_not_declared_is_told_to_be_a_requirement_and_where_it_was_looked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    assert (
        main(
            ["stack", action, "mxnet", "here", "free", "onnxruntime==1.30.0", "--mlms-manifests=.."]
        )
        == 0
    )
    shown, errors = capsys.readouterr()
    looked = f"{folder}, .."
    assert [line for line in errors.splitlines() if "has no environment" not in line] == [
        f"mlms: mxnet is not declared in {looked}, so it is any version of mxnet; --mlms-manifests DIR says where else"
    ]
    if action == "show":
        declared = [
            line.split(maxsplit=1)[1] for line in shown.splitlines() if line.startswith("declared")
        ]
        assert declared == [f"not in {looked}", "needs none", "stacks.yaml:3", f"not in {looked}"]


@pytest.mark.slow
def test_a_stack_is_made_shown_locked_and_removed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = said(capsys, "create", "free").strip()
    assert made.startswith("free: ")
    assert Path(made.partition(": ")[2]).exists()
    assert "made, Python" in said(capsys, "list")
    shown = said(capsys, "show", "free")
    assert "  tiny==1.0\n" in shown
    assert "stacks.yaml:3" in shown
    locked = said(capsys, "lock", "free").splitlines()
    assert locked[0].startswith("# free: Python ")
    assert "tiny==1.0" in locked
    assert main(["stack", "remove", "free"]) == 1  # this process uses it
    assert "stack free is in use by a process" in capsys.readouterr().err
    release()
    assert "removed" in said(capsys, "remove", "free")
    assert "not made" in said(capsys, "show", "free")


@pytest.mark.slow
def test_the_lock_file_is_written_and_then_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stack", "create", "mine"]) == 1
    assert "mine.lock can't be read" in capsys.readouterr().err
    assert "mine.lock" in said(capsys, "lock", "mine")
    assert "tiny==1.0" in (folder / "mine.lock").read_text().splitlines()
    write_wheel(folder / "wheels", "tiny", "2.0")
    said(capsys, "create", "mine")
    assert "  tiny==1.0\n" in said(capsys, "show", "mine")


@pytest.mark.slow
def test_what_fails_is_told_and_the_others_are_tried(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stack", "create", "nowhere", "broken", "here"]) == 1
    output, errors = capsys.readouterr()
    assert f"here: {sys.executable}" in output
    assert "mlms: stack nowhere: no Python 3.99" in errors
    assert "mlms: stack broken can't be made with Python" in errors
    assert "No matching distribution found for tiny==9" in errors


@pytest.mark.parametrize("action", ["create", "show", "lock", "remove"])
def test_an_unknown_stack_is_a_usage_error(
    folder: Path, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    assert main(["stack", action, "frea"]) == 2
    assert "mlms: stack: 'frea' is neither a stack nor a requirement" in capsys.readouterr().err


def test_a_stack_without_requirements_can_not_be_locked(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stack", "lock", "here"]) == 1
    assert "stack here has no requirements; only those can be locked" in capsys.readouterr().err


def test_a_stack_without_an_environment_is_removed_in_peace(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stack", "remove", "free", "all"]) == 0
    cache = folder / "cache"
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"mlms: {what} in {cache}"
        for what in ("free has no environment", "there is no environment")
    ]
