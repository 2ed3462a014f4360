"""Programs of ours are not those of the current folder, whatever lies there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_mlms.core.starts import module_command
from pytest_mlms.explain.repro.replay.environments import find_pip
from pytest_mlms.provide.stacks.interpreters import probe
from tests.support.project import HANG_GUARD, ROOT

SHADOWED = ("pip", "pytest", "json", "venv", "platform", "runpy", "pluggy")
HOSTILE = "open('it-ran', 'a').write(__name__)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder whose files have the names of modules."""
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_pip_and_interpreters_are_asked_without_the_current_folder(folder: Path) -> None:
    assert find_pip().source
    probe(sys.executable)
    assert not (folder / "it-ran").exists()


@pytest.mark.parametrize("with_folder", [False, True])
def test_a_module_is_run_without_the_current_folder(folder: Path, with_folder: bool) -> None:
    command = [*module_command("pytest", with_folder=with_folder), "--version"]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=HANG_GUARD, check=False
    )
    assert (done.returncode, done.stdout[:7]) == (0, "pytest "), done.stderr
    assert not (folder / "it-ran").exists()


def test_only_isolated_interpreters_run_modules_and_code() -> None:
    """Each list of words with -m or -c has -I, or the code leaves the folder out, as git's does."""
    found = []
    for path in (ROOT / "pytest_mlms").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.List, ast.Tuple)):
                continue
            words = [part.value for part in node.elts if isinstance(part, ast.Constant)]
            if {"-m", "-c"} & set(words) and "-I" not in words:
                found.append(str(path.relative_to(ROOT / "pytest_mlms")))
    question = "provide/stacks/interpreters.py"
    assert set(found) == {"show/report/results.py", "core/starts.py", question}
