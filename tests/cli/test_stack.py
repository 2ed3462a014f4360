"""The command ``mlms stack``, in a folder with stacks of its own."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_mlms.cli.main import main
from pytest_mlms.provide.stacks.environments import Environment, release, use
from tests.support.wheels import offline, share_seeds, write_wheel  # noqa: F401

pytestmark = pytest.mark.usefixtures("offline")

STACKS = """
mine: {framework: onnxruntime, requirements: [tiny>=0.5], lock: mine.lock, threads: 2, env: {A: b}}
free: {framework: onnxruntime, requirements: [tiny]}
broken: {framework: onnxruntime, requirements: [tiny==9]}
nowhere: {framework: onnxruntime, python: "3.99", requirements: [tiny]}
"""


class Command:
    """Runs the command, and keeps what it printed."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self.output = ""
        self.errors = ""

    def run(self, *arguments: str) -> int:
        status = main(["stack", *arguments])
        self.output, self.errors = self._capsys.readouterr()
        return status


@pytest.fixture
def command(
    tmp_path: Path,
    seeds: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    write_wheel(tmp_path / "wheels", "tiny", "1.0")
    (tmp_path / "stacks.yaml").write_text(STACKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLMS_CACHE", str(tmp_path / "cache"))
    share_seeds(tmp_path / "cache", seeds)
    return Command(tmp_path, capsys)


def test_the_list_has_the_declared_stacks_and_their_states(command: Command) -> None:
    assert command.run("list") == 0
    rows = rows_of(command.output)
    assert list(rows) == ["stack", "here", "mine", "free", "broken", "nowhere"]
    assert "interpreter current" in rows["here"]
    assert "tiny" in rows["free"]
    assert "not made, Python" in rows["free"]
    assert "no Python 3.99 on PATH" in rows["nowhere"]


def rows_of(output: str) -> dict[str, str]:
    """Return each row of the list by the name of its stack; it may have more than one line."""
    rows = re.split(r"\n(?! )", output.rstrip())
    return {row.split()[0]: row for row in rows}


def test_the_list_fits_80_columns_and_breaks_no_name(command: Command) -> None:
    names = [f"opencv-python-headless=={number}.14.0.94" for number in range(4)]
    wide = f"wide: {{framework: opencv, requirements: [{', '.join(names)}]}}\n"
    (command.folder / "stacks.yaml").write_text(STACKS + wide)
    assert command.run("list") == 0
    assert all(len(line) <= 80 for line in command.output.splitlines())
    row = rows_of(command.output)["wide"]
    assert set(names) <= set(row.replace(",", "").split())


def test_a_list_without_declarations_says_where_it_searched(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = command.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert command.run("list") == 0
    message = f"no stacks.yaml declares any in {elsewhere}; --mlms-manifests DIR"
    assert message in command.errors


def test_declarations_in_other_folders_are_found(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = command.folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert command.run("list", "--mlms-manifests=..") == 0
    assert "mine" in command.output
    assert command.errors == ""


@pytest.mark.parametrize("action", ["show", "remove"])
def test_a_bare_name_that_is_not_declared_is_noted_to_be_a_requirement(
    command: Command, action: str
) -> None:
    words = ["mxnet", "here", "free", "onnxruntime==1.30.0"]
    elsewhere = command.folder / "elsewhere"
    elsewhere.mkdir()
    assert command.run(action, *words, "--mlms-manifests=./elsewhere/../elsewhere") == 0
    notes = [line for line in command.errors.splitlines() if "has no environment" not in line]
    searched = f"{command.folder}, {elsewhere}"
    meaning = "so it is any version of mxnet; --mlms-manifests DIR says where else"
    assert notes == [f"mlms: mxnet is not declared in {searched}, {meaning}"]


def test_a_shown_stack_has_the_place_of_its_declaration(command: Command) -> None:
    assert command.run("show", "mxnet", "here", "free") == 0
    declared = []
    for line in command.output.splitlines():
        if line.startswith("declared"):
            declared.append(line.removeprefix("declared").strip())
    assert declared == [f"not in {command.folder}", "needs none", "stacks.yaml:3"]


def test_a_shown_stack_has_its_threads_and_variables(command: Command) -> None:
    assert command.run("show", "mine") == 0
    assert "threads      2\n" in command.output
    assert "environment  A=b\n" in command.output


@pytest.mark.slow
def test_a_stack_is_created_shown_locked_and_removed(command: Command) -> None:
    assert command.run("create", "free") == 0
    name, _, interpreter = command.output.strip().partition(": ")
    assert name == "free"
    assert Path(interpreter).exists()

    assert command.run("list") == 0
    assert "made, Python" in command.output

    assert command.run("show", "free") == 0
    assert "  tiny==1.0\n" in command.output

    assert command.run("lock", "free") == 0
    head, *packages = command.output.splitlines()
    assert head.startswith("# free: Python ")
    assert "tiny==1.0" in packages

    assert command.run("remove", "free") == 1
    assert "stack free is in use by a process" in command.errors

    release()
    assert command.run("remove", "free") == 0
    assert "removed" in command.output
    assert command.run("show", "free") == 0
    assert "not made" in command.output


@pytest.mark.slow
def test_the_lock_file_is_written_and_then_used(command: Command) -> None:
    assert command.run("create", "mine") == 1
    assert "mine.lock can't be read" in command.errors

    assert command.run("lock", "mine") == 0
    lock = command.folder / "mine.lock"
    assert "tiny==1.0" in lock.read_text().splitlines()

    write_wheel(command.folder / "wheels", "tiny", "2.0")
    assert command.run("create", "mine") == 0
    assert command.run("show", "mine") == 0
    assert "  tiny==1.0\n" in command.output


@pytest.mark.slow
def test_an_error_of_one_stack_does_not_keep_others_from_being_made(command: Command) -> None:
    assert command.run("create", "nowhere", "broken", "here") == 1
    assert f"here: {sys.executable}" in command.output
    assert "mlms: stack nowhere: no Python 3.99" in command.errors
    assert "mlms: stack broken can't be made with Python" in command.errors
    assert "No matching distribution found for tiny==9" in command.errors


@pytest.mark.parametrize("action", ["create", "show", "lock", "remove"])
def test_an_unknown_stack_is_a_usage_error(command: Command, action: str) -> None:
    assert command.run(action, "frea") == 2
    assert "mlms: stack: 'frea' is neither a stack nor a requirement" in command.errors


def test_a_stack_without_requirements_can_not_be_locked(command: Command) -> None:
    assert command.run("lock", "here") == 1
    assert "stack here has no requirements; only those can be locked" in command.errors


def test_removing_a_stack_without_an_environment_is_a_note(command: Command) -> None:
    assert command.run("remove", "free", "all") == 0
    cache = command.folder / "cache"
    assert command.errors.splitlines() == [
        f"mlms: free has no environment in {cache}",
        f"mlms: there is no environment in {cache}",
    ]


def test_what_nobody_has_used_for_so_many_days_is_removed(command: Command) -> None:
    made = {name: fake_environment(command.folder, name) for name in ("old", "new", "held")}
    month_ago = time.time() - 31 * 24 * 3600
    for environment in made.values():
        environment.use_file.touch()
        os.utime(environment.use_file, (month_ago, month_ago))
    use(made["new"])
    release()
    with made["held"].use_file.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert command.run("remove", "--unused", "40") == 0
        assert "each was used in the last 40 days" in command.errors
        assert command.run("remove", "new", "--unused", "30") == 0
        assert command.run("remove", "--unused", "30") == 0
    assert command.output.startswith("old: ")
    assert [name for name, each in made.items() if each.folder.exists()] == ["new", "held"]


def test_the_days_without_use_are_counted_from_the_end_of_the_last_one(command: Command) -> None:
    made = fake_environment(command.folder, "long")
    program = f"""
import os
from pathlib import Path
from pytest_mlms.provide.stacks.environments import environments, use
(made,) = environments(Path({str(command.folder / "cache")!r}))
use(made)
os.utime(made.use_file, (0, 0))  # as if it began long ago
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    command.run("remove", "--unused", "30")
    assert "each was used in the last 30 days" in command.errors
    assert made.folder.exists()


def test_what_is_not_there_is_not_said_to_be_used(command: Command) -> None:
    assert command.run("remove", "--unused", "30") == 0
    assert command.errors == f"mlms: there is no environment in {command.folder / 'cache'}\n"


def test_an_environment_whose_use_can_not_be_read_is_an_error_of_its_own(command: Command) -> None:
    made = {name: fake_environment(command.folder, name) for name in ("broken", "old")}
    made["broken"].use_file.mkdir()
    made["old"].use_file.touch()
    os.utime(made["old"].use_file, (0, 0))
    assert command.run("remove", "--unused", "30") == 1
    assert "Is a directory" in command.errors
    assert not made["old"].folder.exists()


def test_removing_takes_a_name_or_days(command: Command) -> None:
    assert command.run("remove") == 2
    assert command.errors == "mlms: name a stack to remove, 'all', or --unused DAYS\n"


def fake_environment(folder: Path, name: str) -> Environment:
    """Return the environment of a stack, which has nothing in it."""
    made = folder / "cache" / "stacks" / name
    made.mkdir(parents=True)
    environment = Environment(made, name, "3.11.7", "linux-x86_64", requirements=(), lock=())
    facts = {"stack": name, "python": "3.11.7", "platform": "linux-x86_64"}
    (made / "mlms-stack.json").write_text(json.dumps({**facts, "requirements": [], "lock": []}))
    return environment
