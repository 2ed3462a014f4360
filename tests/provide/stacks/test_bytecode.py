"""Interpreters with and without bytecode: environments whose one package is written by hand."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from pytest_mlms.core.records import Launch
from pytest_mlms.provide.stacks.bytecode import advice_on_bytecode


def test_an_interpreter_without_bytecode_is_named_until_its_command_has_run(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "a b"], check=True)
    python = tmp_path / "a b" / "bin" / "python"
    (packages,) = (tmp_path / "a b" / "lib").glob("*/site-packages")
    launch = Launch((str(python), "-s", "-B"), dict(os.environ))
    assert advice_on_bytecode(launch) == ""
    for name in ("alpha", "beta"):
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("")
    advice, _, command = advice_on_bytecode(launch).partition("; ")
    assert advice.startswith(f"{python} has no bytecode of 2 packages, such as alpha: its agents")
    subprocess.run(shlex.split(command), check=True)
    assert advice_on_bytecode(launch) == ""


def test_an_interpreter_that_does_not_answer_is_left_to_what_starts_agents(tmp_path: Path) -> None:
    assert advice_on_bytecode(Launch((str(tmp_path / "gone"), "-B"), {})) == ""
    assert advice_on_bytecode(Launch(("/bin/false",), {})) == ""
