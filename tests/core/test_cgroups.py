"""Control groups of this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.core import memory


@pytest.mark.parametrize(
    ("name", "text", "kills"),
    [
        ("memory.events", "low 0\noom 9\noom_kill 3\noom_group_kill 0\n", 3),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2),
    ],
)
def test_kills_for_lack_of_memory_are_those_of_our_own_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, kills: int
) -> None:
    (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "cgroup_folders", lambda: [tmp_path / "gone", tmp_path])
    assert memory.oom_kills() == kills


def test_without_a_group_of_memory_kills_are_those_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "cgroup_folders", lambda: [tmp_path])
    counted = "\noom_kill " in Path("/proc/vmstat").read_text()
    assert (memory.oom_kills() is not None) == counted
