"""``mlms library build`` where something that it needs is missing."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main

build = import_module("pytest_mlms.predict.library.build")
COMMAND = ["library", "build", "--output"]


def test_a_missing_compiler_is_told_with_the_command_that_installs_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([*COMMAND, str(tmp_path / "b")]) == 2
    error = capsys.readouterr().err
    assert "needs a C compiler, and there is no cc; Debian and Ubuntu: apt install gcc" in error
    assert not (tmp_path / "b").exists()


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'out of luck' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert main([*COMMAND, str(tmp_path / "b")]) == 2
    assert "out of luck" in capsys.readouterr().err
    assert not list((tmp_path / "b").iterdir())


def test_missing_headers_and_a_missing_library_of_python_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "_places", lambda: iter([tmp_path]))
    assert main([*COMMAND, str(tmp_path / "b")]) == 2
    error = capsys.readouterr().err
    assert f".so, which is not in {tmp_path}; " in error
    assert "--enable-shared" in error or "-dev; Fedora" in error
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    assert main([*COMMAND, str(tmp_path / "b")]) == 2
    assert f"needs {tmp_path}/Python.h, which isn't there; " in capsys.readouterr().err


def test_a_missing_cffi_is_told_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cffi", None)
    assert main([*COMMAND, str(tmp_path / "b")]) == 2
    assert "this needs cffi: pip install" in capsys.readouterr().err


def test_a_folder_that_can_not_be_written_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b").touch()
    assert main([*COMMAND, str(tmp_path / "b")]) == 2
    error = capsys.readouterr().err
    assert "can't be written: File exists; name another folder by --output" in error
