"""Probing interpreters and finding versions, by real ones and by scripts in their place."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.core.errors import StackError, Unavailable
from pytest_mlms.provide.stacks import interpreters
from pytest_mlms.provide.stacks.interpreters import find_interpreter, probe

THIS = "{}.{}".format(*sys.version_info[:2])


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    find_interpreter.cache_clear()
    yield
    find_interpreter.cache_clear()


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def write_fake(path: Path, version: str, implementation: str = "CPython") -> Path:
    """Write a script that answers as a Python of a version would."""
    answer = f'["{version}", "{implementation}", "linux-x86_64", "/fake"]'
    return write_script(path, f"echo '{answer}'")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on PATH, no pyenv, no uv, no py."""
    for folder in ("bin", "pyenv"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_an_interpreter_has_its_version_and_its_folder() -> None:
    found = probe(sys.executable)
    assert found.path == Path(sys.executable)
    assert found.version.startswith(THIS)
    assert found.release == sys.version_info[:2]
    assert found.implementation.lower() == sys.implementation.name
    assert found.prefix == Path(sys.prefix)


def test_a_version_built_by_hand_has_a_release(bare: Path) -> None:
    assert probe(write_fake(bare / "python", "3.11.7+")).release == (3, 11)


def test_an_interpreter_is_found_by_its_name_on_path(bare: Path) -> None:
    write_fake(bare / "bin" / "mypython", "3.9.1")
    assert probe("mypython").version == "3.9.1"


def test_an_interpreter_that_was_replaced_is_probed_again(bare: Path) -> None:
    path = write_fake(bare / "python", "3.9.1")
    assert probe(path).version == "3.9.1"
    write_fake(path, "3.9.2")
    os.utime(path, ns=(1, 1))
    assert probe(path).version == "3.9.2"


def test_a_name_that_is_not_on_path_is_unavailable() -> None:
    message = "the interpreter no-such-python isn't on PATH; install it, or name another"
    with pytest.raises(Unavailable, match=message):
        probe("no-such-python")


@pytest.mark.parametrize("path", ["/nowhere/python", "./nowhere/python", "venv/bin/python"])
def test_a_path_that_leads_nowhere_is_an_error(path: str) -> None:
    with pytest.raises(StackError, match=f"the interpreter {path} isn't there; correct its path"):
        probe(path)


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_path_to_no_program_is_an_error(tmp_path: Path, is_folder: bool) -> None:
    path = tmp_path / "python"
    if is_folder:
        path.mkdir()
    else:
        path.write_text("text")
    with pytest.raises(StackError, match="is no program that may be run; correct its path"):
        probe(path)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo hello", "it ended with status 0 and said 'hello'"),
        ("echo no such thing >&2; exit 3", "it ended with status 3 and said 'no such thing'"),
        ("exit 1", "it ended with status 1"),
        ("echo '[1, 2]'", r"it ended with status 0 and said '\[1, 2\]'"),
        ("echo 3", "it ended with status 0 and said '3'"),
        ("kill -9 $$", "it ended with status -9"),
    ],
)
def test_another_program_is_an_error_with_its_answer(
    tmp_path: Path, script: str, problem: str
) -> None:
    message = rf"python is not a Python interpreter: asked for its version, {problem}$"
    with pytest.raises(StackError, match=message):
        probe(write_script(tmp_path / "python", script))


def test_a_program_of_another_machine_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_bytes(b"\x7fELF" + bytes(60))
    path.chmod(0o755)
    with pytest.raises(StackError, match=r"it can't be run \(Exec format error\)"):
        probe(path)


def test_a_program_that_never_answers_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "_SECONDS", 0.5)
    with pytest.raises(StackError, match=r"it gave no answer in 0\.5 s$"):
        probe(write_script(tmp_path / "python", "exec sleep 600"))


def test_an_interpreter_that_is_too_old_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"is Python 3\.5\.9; agents need 3\.6 or later"):
        probe(write_fake(tmp_path / "python", "3.5.9"))


def find_python_2() -> str | None:
    paths = sorted(Path.home().glob(".pyenv/versions/2.7*/bin/python"))
    if paths:
        return str(paths[0])
    return shutil.which("python2")


def test_a_real_python_2_is_too_old() -> None:
    path = find_python_2()
    if path is None:
        pytest.skip("no Python 2 on this machine")
    with pytest.raises(StackError, match=r"is Python 2\.7\.\d+; agents need 3\.6"):
        probe(path)


def test_variables_of_python_do_not_change_the_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a leak')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert probe(link).version.startswith(THIS)


def test_the_interpreter_that_runs_this_is_found_first(bare: Path) -> None:
    write_fake(bare / "bin" / f"python{THIS}", f"{THIS}.0")
    assert find_interpreter(THIS).path == Path(sys.executable)


def test_a_version_is_found_on_path_whatever_the_program_is_called(bare: Path) -> None:
    path = write_fake(bare / "bin" / "python3", "3.8.2")
    assert find_interpreter("3.8").path == path


def test_a_patch_version_is_found_by_its_minor_name(bare: Path) -> None:
    write_fake(bare / "bin" / "python3.7", "3.7.1")
    assert find_interpreter("3.7.1").version == "3.7.1"


def test_a_shim_of_a_version_that_is_not_active_is_passed_over(bare: Path) -> None:
    shim = "echo 'pyenv: python3.8: command not found' >&2; exit 127"
    write_script(bare / "bin" / "python3.8", shim)
    write_fake(bare / "pyenv" / "versions" / "3.8.4" / "bin" / "python", "3.8.4")
    assert find_interpreter("3.8").version == "3.8.4"


def test_a_version_that_only_begins_alike_is_passed_over(bare: Path) -> None:
    write_fake(bare / "bin" / "python3", "3.80.1")
    with pytest.raises(Unavailable):
        find_interpreter("3.8")


@pytest.mark.parametrize(("asked", "found"), [("3.8", "3.8.18"), ("3.8.9", "3.8.9")])
def test_the_newest_of_pyenv_s_versions_is_found(bare: Path, asked: str, found: str) -> None:
    for version in ("3.8.9", "3.8.18", "3.8.2"):
        write_fake(bare / "pyenv" / "versions" / version / "bin" / "python", version)
    assert find_interpreter(asked).version == found


@pytest.mark.parametrize("tool", ["uv", "py"])
def test_uv_and_py_are_asked_for_their_versions(bare: Path, tool: str) -> None:
    path = write_fake(bare / "elsewhere" / "python", "3.8.7")
    write_script(bare / "bin" / tool, f'case "$*" in *3.8*) echo {path};; *) exit 1;; esac')
    assert find_interpreter("3.8").path == path
    with pytest.raises(Unavailable):
        find_interpreter("3.9.99")


def test_a_version_that_is_nowhere_is_unavailable_with_what_to_install(bare: Path) -> None:
    message = r"no Python 3\.8 on PATH, .*install it: 'uv python install 3\.8'"
    with pytest.raises(Unavailable, match=message):
        find_interpreter("3.8")


def test_a_free_threaded_python_is_not_found_by_its_version(bare: Path) -> None:
    write_fake(bare / "bin" / "python3.13", "3.13.1", "CPython, free-threaded")
    with pytest.raises(Unavailable):
        find_interpreter("3.13.1")


def test_only_cpython_is_found_by_its_version(bare: Path) -> None:
    path = write_fake(bare / "bin" / "python3.8", "3.8.13", "PyPy")
    assert probe(path).implementation == "PyPy"
    with pytest.raises(Unavailable):
        find_interpreter("3.8")
