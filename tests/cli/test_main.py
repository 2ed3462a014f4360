"""The command ``mlms`` as it is installed, and its exit statuses."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.cli.main import _SUBCOMMANDS, _parser, main, run_in_job

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
    ("words", "command"),
    [
        ("compare m.onnx --old a --new b --foo", "mlms compare"),
        ("stack list no", "mlms stack list"),
    ],
)
def test_what_a_subcommand_does_not_take_is_told_with_its_own_usage(
    words: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words.split())
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"usage: {command} [-h] ")
    assert last == f"{command}: error: unrecognized arguments: {words.rsplit(maxsplit=1)[-1]}"


def test_an_option_must_be_written_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["predict", "m.yaml", "x.png", "--layer"])
    assert "arguments: --layer; did you mean --layers?" in capsys.readouterr().err
    for parser in parsers_below(_parser(_SUBCOMMANDS)):
        assert not parser.allow_abbrev, parser.prog


def parsers_below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers_below(below)


def test_paths_may_begin_at_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["doctor", "~/none.yaml", "--mlms-cache=~/c"]) == 2
    assert f"there is no manifest {tmp_path}/none.yaml" in capsys.readouterr().err


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
from collections.abc import Iterator
from pytest_mlms.cli.main import main
main(["stack", "list"])
print("imported:", *{"numpy", "psutil", "onnx", "scipy"} & set(sys.modules))
"""


def test_a_subcommand_imports_nothing_that_only_others_need(tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "imported:"


INTERRUPTED = """
import sys
from collections.abc import Iterator
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name in ("pydantic", "yaml"):
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from pytest_mlms.cli.main import main
sys.exit(main(["predict", "m.yaml", "a.png"]))
"""


def test_ctrl_c_while_libraries_are_imported_causes_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "mlms: interrupted\n")


def test_an_error_is_one_line_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "nowhere"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_reader_that_ends_early_causes_no_traceback() -> None:
    command = f"{MLMS} schema | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_a_command_that_ends_with_1_tells_the_page_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    Path("m.yaml").write_text("name: m\nmodels: []\n")
    assert main(["lint", "m.yaml"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("m.yaml:")
    assert "::error file=m.yaml,line=2,title=mlms%3A the manifest is wrong::" in captured.err
    assert summary.read_text().startswith("## mlms lint m.yaml\n\n```\nm.yaml:")
    assert main(["stack", "list"]) == 0
    assert "stack" not in summary.read_text()


def test_a_command_without_lines_of_files_is_annotated_by_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def run() -> int:
        print("found")
        print("mlms: 2 of 3: wrong", file=sys.stderr)
        return 1

    assert run_in_job(["history", "changes", "--fail"], run) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "::error title=mlms history changes::mlms: 2 of 3: wrong"
