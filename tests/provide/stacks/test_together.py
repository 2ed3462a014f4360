"""Stacks that are made side by side."""

from __future__ import annotations

import signal
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.provide.stacks.environments import environments
from pytest_mlms.provide.stacks.launch import prepare
from pytest_mlms.provide.stacks.together import make_together
from tests.support.wheels import offline, write_wheel  # noqa: F401

pytestmark = pytest.mark.usefixtures("offline")

HANG_GUARD = 120.0  # seconds
together = import_module("pytest_mlms.provide.stacks.together")


def stacks_of(folder: Path, *names: str) -> list[Stack]:
    """Return stacks of wheels, each of one called like it."""
    for name in names:
        write_wheel(folder / "wheels", name, "1.0")
    return [Stack(name, "any", requirements=(name,)) for name in names]


def names_made(cache: Path) -> list[str]:
    return sorted(made.stack for made in environments(cache))


@pytest.mark.slow
def test_stacks_are_made_at_once_with_one_line_of_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=HANG_GUARD)

    def prepare_with_the_other(*arguments: Any, **options: Any) -> Launch:
        both.wait()
        return prepare(*arguments, **options)

    monkeypatch.setattr(together, "prepare", prepare_with_the_other)
    steps: list[str] = []
    make_together(stacks_of(tmp_path, "tiny", "small"), tmp_path / "cache", steps.append)
    assert names_made(tmp_path / "cache") == ["small", "tiny"]
    assert "0 of 2 stacks made; tiny: installing" in steps
    assert not any("Collecting" in step for step in steps)
    assert steps[-1] == ""


@pytest.mark.slow
def test_an_error_of_one_stack_is_left_to_who_opens_it(tmp_path: Path) -> None:
    stacks = [*stacks_of(tmp_path, "tiny"), Stack("lacking", "any", requirements=("lacking",))]
    make_together(stacks, tmp_path / "cache", lambda step: None)
    assert names_made(tmp_path / "cache") == ["tiny"]
    with pytest.raises(StackError, match="stack lacking can't be made"):
        prepare(stacks[1], tmp_path / "cache")


def test_a_single_stack_and_interpreters_are_left_to_who_opens_them(tmp_path: Path) -> None:
    here = Stack("here", "any", interpreter="current")
    make_together([*stacks_of(tmp_path, "tiny"), here], tmp_path / "cache", pytest.fail)
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_an_interruption_ends_all_installers_and_leaves_nothing(tmp_path: Path) -> None:
    def press(step: str) -> None:
        if "installing" in step:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        make_together(stacks_of(tmp_path, "tiny", "small"), tmp_path / "cache", press)
    assert names_made(tmp_path / "cache") == []
    left = (tmp_path / "cache" / "stacks").glob("*.new")
    assert list(left) == []
    assert together.end_running(signal.SIGKILL) is None
