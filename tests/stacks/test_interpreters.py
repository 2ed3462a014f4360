"""Interpreters: which are ones, and where one of a version is."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.errors import StackError, Unavailable
from pytest_mlms.stacks import interpreters
from pytest_mlms.stacks.interpreters import find_interpreter, probe

HERE = "{}.{}".format(*sys.version_info[:2])


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    find_interpreter.cache_clear()
    yield
    find_interpreter.cache_clear()


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def pretend(path: Path, version: str) -> Path:
    """Make a program that answers as a Python of that version would."""
    return script(path, f"""echo '["{version}", "CPython", "linux-x86_64", "/pretended"]'""")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on PATH, no pyenv, no uv, no py."""
    for folder in ("bin", "pyenv"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_an_interpreter_says_what_it_is() -> None:
    found = probe(sys.executable)
    assert found.path == Path(sys.executable)
    assert found.version.startswith(HERE)
    assert found.release == sys.version_info[:2]
    assert found.implementation == sys.implementation.name.replace("cpython", "CPython")
    assert found.prefix == Path(sys.prefix)


def test_an_interpreter_is_found_by_its_name_on_path(bare: Path) -> None:
    pretend(bare / "bin" / "mypython", "3.9.1")
    assert probe("mypython").version == "3.9.1"


@pytest.mark.parametrize("path", ["/nowhere/python", "no-such-python"])
def test_one_that_is_not_there_is_lacking(path: str) -> None:
    with pytest.raises(Unavailable, match=f"the interpreter {path} isn't there; install it"):
        probe(path)


def test_a_file_that_may_not_be_run_is_lacking(tmp_path: Path) -> None:
    (tmp_path / "python").write_text("text")
    with pytest.raises(Unavailable, match="is no program that may be run"):
        probe(tmp_path / "python")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo hello", "asked for its version, it ended with status 0 and said 'hello'"),
        ("echo no such thing >&2; exit 3", "it ended with status 3 and said 'no such thing'"),
        ("exit 1", "it ended with status 1"),
        ("echo '[1, 2]'", r"it ended with status 0 and said '\[1, 2\]'"),
        ("echo 3", "it ended with status 0 and said '3'"),
        ("kill -9 $$", "it ended with status -9"),
    ],
)
def test_one_that_is_something_else_says_what_it_answered(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(StackError, match=rf"python is not a Python interpreter: .*{says}$"):
        probe(script(tmp_path / "python", text))


def test_a_program_of_another_machine_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "python").write_bytes(b"\x7fELF" + bytes(60))
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(StackError, match=r"it can't be run \(Exec format error\)"):
        probe(tmp_path / "python")


def test_one_that_never_answers_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "_SECONDS", 0.5)
    with pytest.raises(StackError, match=r"it gave no answer in 0\.5 s$"):
        probe(script(tmp_path / "python", "exec sleep 600"))


def test_one_that_is_too_old_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"is Python 3\.5\.9; agents need 3\.6 or later"):
        probe(pretend(tmp_path / "python", "3.5.9"))


def test_python_2_is_too_old_too(tmp_path: Path) -> None:
    found = sorted((Path.home() / ".pyenv/versions").glob("2.7*/bin/python")) or [
        shutil.which("python2")
    ]
    if found[0] is None:
        pytest.skip("no Python 2 on this machine")
    with pytest.raises(StackError, match=r"is Python 2\.7\.\d+; agents need 3\.6"):
        probe(found[0])


def test_a_version_is_looked_for_here_first(bare: Path) -> None:
    pretend(bare / "bin" / f"python{HERE}", f"{HERE}.0")
    assert find_interpreter(HERE).path == Path(sys.executable)


def test_a_version_is_found_on_path_by_its_name_or_by_its_answer(bare: Path) -> None:
    pretend(bare / "bin" / "python3", "3.8.2")
    assert find_interpreter("3.8").path == bare / "bin" / "python3"
    pretend(bare / "bin" / "python3.7", "3.7.1")
    assert find_interpreter("3.7.1").version == "3.7.1"


def test_programs_that_are_not_what_they_are_called_are_passed_by(bare: Path) -> None:
    script(bare / "bin" / "python3.8", "echo 'pyenv: python3.8: command not found' >&2; exit 127")
    pretend(bare / "bin" / "python3", "3.80.1")
    pretend(bare / "pyenv" / "versions" / "3.8.4" / "bin" / "python", "3.8.4")
    assert find_interpreter("3.8").version == "3.8.4"


def test_of_pyenvs_the_newest_is_taken(bare: Path) -> None:
    for version in ("3.8.9", "3.8.18", "3.8.2"):
        pretend(bare / "pyenv" / "versions" / version / "bin" / "python", version)
    assert find_interpreter("3.8").version == "3.8.18"
    assert find_interpreter("3.8.9").version == "3.8.9"


@pytest.mark.parametrize("tool", ["uv", "py"])
def test_what_uv_and_py_know_is_asked_for(bare: Path, tool: str) -> None:
    pretended = pretend(bare / "elsewhere" / "python", "3.8.7")
    script(bare / "bin" / tool, f'case "$*" in *3.8*) echo {pretended};; *) exit 1;; esac')
    assert find_interpreter("3.8").path == pretended
    with pytest.raises(Unavailable):
        find_interpreter("3.9.99")


def test_a_version_that_is_nowhere_says_what_to_install(bare: Path) -> None:
    with pytest.raises(
        Unavailable, match=r"no Python 3\.8 on PATH, .*install it: 'uv python install 3\.8'"
    ):
        find_interpreter("3.8")


def test_another_python_than_cpython_is_not_taken_for_a_version(bare: Path) -> None:
    script(bare / "bin" / "python3.8", """echo '["3.8.13", "PyPy", "linux-x86_64", "/p"]'""")
    with pytest.raises(Unavailable):
        find_interpreter("3.8")
    assert probe(bare / "bin" / "python3.8").implementation == "PyPy"


def test_what_leaks_into_python_does_not_change_what_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('a leak')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    copied = tmp_path / "python"
    os.symlink(sys.executable, copied)
    assert probe(copied).version.startswith(HERE)
