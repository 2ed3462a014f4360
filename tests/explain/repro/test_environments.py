"""Tests of the environment that a bundle makes for its own pytest-mlms."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_mlms.explain.repro.replay.environments import (
    CannotRun,
    Pip,
    find_pip,
    make_environment,
)
from tests.support.wheels import offline, write_wheel  # noqa: F401


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        ("", "https://pypi.org/simple"),
        ("https://me:secret@index.example/simple", "https://***@index.example/simple"),
    ],
)
def test_the_index_of_pip_is_told_without_a_password(
    setting: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", setting)
    assert find_pip().source == shown


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("pip", [find_pip(), Pip((), "an index")])
def test_the_environment_of_another_bundle_in_a_folder_is_made_anew(
    tmp_path: Path, pip: Pip
) -> None:
    folder = tmp_path / "environment"
    made = []
    wheels = [
        write_wheel(tmp_path / name, "tiny", "1.0", code=f"NUMBER = {name!r}")  # of one name
        for name in ("first", "other")
    ]
    for wheel in (wheels[0], wheels[0], wheels[1], wheels[1]):
        python = make_environment(pip, str(folder), str(wheel))
        command = [python, "-c", "import tiny; print(tiny.NUMBER)"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        made.append((output.strip(), (folder / "complete").stat().st_mtime_ns))
    assert [code for code, _ in made] == ["first", "first", "other", "other"]
    assert made[0] == made[1] != made[2] == made[3]


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_the_last_lines_of_pip_say_what_it_lacks_and_nothing_is_left(tmp_path: Path) -> None:
    needs = "no-such-package-of-ours==0.0.0"
    wheel = write_wheel(tmp_path / "own", "tiny", "1.0", needs=needs)
    with pytest.raises(CannotRun, match=r"(?s)installing tiny-1.0.* with status 1.*of-ours"):
        make_environment(find_pip(), str(tmp_path / "environment"), str(wheel))
    assert not (tmp_path / "environment").exists()


STARTS_A_COMMAND = """\
import os, signal, subprocess
import psutil
from pytest_mlms.explain.repro.replay import environments

signal.signal(signal.SIGINT, signal.default_int_handler)
start = subprocess.Popen._execute_child

def interrupted_start(process, *arguments):
    start(process, *arguments)
    os.kill(os.getpid(), signal.SIGINT)

subprocess.Popen._execute_child = interrupted_start
try:
    environments._run(["sleep", "60"], "sleeping")
except KeyboardInterrupt:
    left = psutil.Process().children()
    print(len(left))
    for process in left:
        process.kill()
"""


def test_a_ctrl_c_while_a_command_starts_ends_it() -> None:
    words = [sys.executable, "-c", STARTS_A_COMMAND]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stdout == "0\n", done.stderr
