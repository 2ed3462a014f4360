"""Runs of users without a home, or with one that can't be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.project import ALONE, HANG_GUARD, QUICK, copy_digits
from tests.support.users import command_of_nobody, shared

__all__ = ["shared"]


@pytest.fixture
def folder(shared: Path) -> Path:
    """A folder with the digits' manifest, which every user may write to."""
    copy_digits(shared / "project")
    (shared / "project").chmod(0o777)
    return shared / "project"


def environment(**more: str) -> dict[str, str]:
    kept = {}
    for name, value in os.environ.items():
        if name not in ("HOME", "MLMS_CACHE") and not name.startswith("XDG_"):
            kept[name] = value
    return {**kept, **more}


def run(folder: Path, env: Mapping[str, str], *arguments: str) -> str:
    command = command_of_nobody(sys.executable, "-m", *arguments)
    done = subprocess.run(
        command,
        cwd=folder,
        env={**env, "MLMS_LOCKS": str(folder / "locks")},
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
    )
    return f"{done.stdout}{done.stderr}"


def run_pytest(folder: Path, env: Mapping[str, str]) -> str:
    options = ["--mlms-manifests=.", *QUICK, "-kaccuracy", "-pno:cacheprovider"]
    return run(folder, env, "pytest", *options, *ALONE, "-pno:hypothesispytest", "-pno:anyio")


def test_local_files_need_no_home(folder: Path) -> None:
    assert "1 passed" in run_pytest(folder, environment())
    assert not (folder / "~").exists()


@pytest.mark.parametrize("home", ["/nonexistent", "", "relative"])
def test_local_files_need_no_home_that_exists(folder: Path, home: str) -> None:
    assert "1 passed" in run_pytest(folder, environment(HOME=home))


def test_local_files_need_no_home_that_can_be_written(folder: Path, shared: Path) -> None:
    home = shared / "home"
    home.mkdir()
    home.chmod(0o555)
    assert "1 passed" in run_pytest(folder, environment(HOME=str(home)))
    assert list(home.iterdir()) == []


def test_a_download_without_a_home_asks_for_a_cache(folder: Path) -> None:
    manifest = folder / "digits.yaml"
    text = manifest.read_text()
    manifest.write_text(text.replace("graph: ", "graph: http://127.0.0.1:9/"))
    output = run_pytest(folder, environment())
    assert "HOME is not set: name a folder for the cache with --mlms-cache or MLMS_CACHE" in output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["lint", "."], "1 manifest, 0 with errors"),
        (["describe", "digits.yaml"], "of activations at once"),
        (["stack", "list"], "here"),
    ],
)
def test_the_command_needs_no_home(folder: Path, arguments: list[str], expected: str) -> None:
    assert expected in run(folder, environment(), "pytest_mlms", *arguments)
