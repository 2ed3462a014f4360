"""Tests of the environments of a replay."""

from __future__ import annotations

import platform
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from pytest_mlms.explain.repro.replay.environments import (
    THREAD_VARIABLES,
    _content_of,
    agent_variables,
    find_pip,
    make_environment,
    python_of,
)
from pytest_mlms.explain.repro.replay.interpreters import Interpreter, _newest_first
from pytest_mlms.explain.repro.replay.record import BundleSide
from pytest_mlms.provide.stacks.launch import clean_environment
from tests.support.wheels import offline, write_wheel  # noqa: F401


def test_the_newest_python_comes_first(tmp_path: Path) -> None:
    for version in ("3.9.9", "3.9.18", "3.9.2"):
        (tmp_path / version).mkdir()
    found = [Path(folder).name for folder in _newest_first(f"{tmp_path}/3.9.*")]
    assert found == ["3.9.18", "3.9.9", "3.9.2"]


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


@pytest.mark.usefixtures("offline")
def test_the_environment_of_another_bundle_in_a_folder_is_made_anew(tmp_path: Path) -> None:
    python = Interpreter(sys.executable, platform.python_version())
    folder = str(tmp_path / "environment-new")
    made = []
    for version in ("1.0", "2.0"):
        write_wheel(tmp_path / version, "tiny", version, code=f"NUMBER = {version!r}")
    for version in ("1.0", "1.0", "2.0", "2.0"):
        side = BundleSide("tiny", "tiny", python.version, (f"tiny=={version}",))
        make_environment(side, python, find_pip(), folder, str(tmp_path / version))
        mark = Path(folder, "complete")
        command = [python_of(folder), "-c", "import tiny; print(tiny.NUMBER)"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        made.append((output.strip(), mark.stat().st_mtime_ns))
    assert [version for version, _ in made] == ["1.0", "1.0", "2.0", "2.0"]
    assert made[0] == made[1] != made[2] == made[3]


def test_a_wheel_that_comes_along_is_not_read_into_memory_whole(tmp_path: Path) -> None:
    python = Interpreter(sys.executable, platform.python_version())
    side = BundleSide("tiny", "tiny", python.version, ("tiny==1.0",))
    with (tmp_path / "tiny-1.0-py3-none-any.whl").open("wb") as wheel:
        wheel.truncate(1 << 26)
    tracemalloc.start()
    try:
        content = _content_of(side, python, str(tmp_path))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "tiny-1.0" in content
    assert most < 1 << 23


def test_agents_have_your_variables_that_change_what_they_compute_and_no_secrets() -> None:
    names = ["TF_ENABLE_ONEDNN_OPTS", "KMP_AFFINITY", "LD_PRELOAD", "OMP_NUM_THREADS"]
    base = {**dict.fromkeys(names, "1"), "NVIDIA_API_KEY": "x", "GITHUB_TOKEN": "x"}
    base |= {"TF_VAR_db": "x", "TORCH_PASSWORD": "x", "ORT_HOME": "https://me:hidden@h/x"}
    assert agent_variables(base, threads=2) == {
        "TF_ENABLE_ONEDNN_OPTS": "1",
        "KMP_AFFINITY": "1",
        "LD_PRELOAD": "1",
        "PYTHONNOUSERSITE": "1",
        **dict.fromkeys(THREAD_VARIABLES, "2"),
    }


@pytest.mark.parametrize(
    "name",
    [
        *("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC"),
        *("KMP_HW_SUBSET", "MKL_DYNAMIC", "OMP_NUM_TEAMS", "NPROC", "OMP_WAIT_POLICY"),
        *("ORT_NUM_THREADS", "ONEDNN_VERBOSE", "MALLOC_ARENA_MAX", "XLA_FLAGS", "GPU_TOKEN"),
    ],
)
def test_a_replay_s_agents_get_what_those_of_a_measurement_do(name: str) -> None:
    assert agent_variables({name: "1"}) == clean_environment({name: "1"}, {})


def test_the_variables_of_a_side_are_set_whatever_yours_are() -> None:
    found = agent_variables(
        {"MKL_CBWR": "AVX2"}, 2, (("MKL_CBWR", "AUTO"), ("OMP_NUM_THREADS", "4"))
    )
    assert (found["MKL_CBWR"], found["OMP_NUM_THREADS"]) == ("AUTO", "4")
