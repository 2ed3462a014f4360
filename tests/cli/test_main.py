"""The command ``mlms`` as it is installed, and its exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main

MLMS = Path(sys.executable).parent / "mlms"
SUBCOMMANDS = ["schema", "lint", "describe", "judge", "worker", "stack"]


def test_the_installed_command_lists_its_subcommands() -> None:
    done = subprocess.run([MLMS, "--help"], capture_output=True, text=True, check=True)
    for name in SUBCOMMANDS:
        assert f"    {name} " in done.stdout


def test_the_command_without_a_subcommand_is_a_usage_error() -> None:
    assert subprocess.run([MLMS], capture_output=True, check=False).returncode == 2


def test_the_command_can_be_run_as_a_module() -> None:
    command = [sys.executable, "-m", "pytest_mlms", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pytest-mlms ")


@pytest.mark.parametrize(
    ("line", "words"), [("mlms sch", ["schema "]), ("mlms judge --tol", ["--tolerance "])]
)
def test_the_shell_completes_subcommands_and_options(
    tmp_path: Path, line: str, words: list[str]
) -> None:
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    environment = {
        **os.environ,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    subprocess.run([MLMS], env=environment, check=False)
    assert answer.read_text().split("\n") == words


IMPORTED = """
import sys
from pytest_mlms.cli.main import main
main(["stack", "list"])
print("imported:", *{"numpy", "psutil", "pytest", "scipy"} & set(sys.modules))
"""


def test_a_subcommand_imports_nothing_that_only_others_need(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported:"


def test_an_error_is_one_line_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "nowhere"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_reader_that_ends_early_causes_no_traceback() -> None:
    command = f"{MLMS} schema | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "{\n"
    assert done.stderr == ""
