"""The state of this machine, and of a GPU above a stub of its driver."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import psutil
import pytest

from pytest_mlms.core import memory
from pytest_mlms.provide.host import machine
from pytest_mlms.provide.host.machine import CpuTimes, cores_beside, machine_state
from tests.support.driver import H200, SLICED, Driver


class Kernel:
    """A machine with two memory nodes, whose cores this process may use: 0 to 7 and 8 to 11."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for core in range(12):
            self.write(
                f"system/cpu/cpu{core}/node{core // 8}/cpulist", "8-11" if core > 7 else "0-7"
            )

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(machine, "_DEVICES", tmp_path)
    monkeypatch.setattr(machine, "cgroup_folders", lambda: [tmp_path])
    monkeypatch.setattr(os, "sched_getaffinity", lambda number: set(range(12)))
    return Kernel(tmp_path)


@pytest.mark.usefixtures("kernel")
def test_cores_beside_have_the_same_memory_and_are_the_next_ones() -> None:
    assert cores_beside([2, 3]) == {2: 4, 3: 5}
    assert cores_beside([7]) == {7: 0}
    assert cores_beside([9, 10]) == {9: 11, 10: 8}
    assert cores_beside([8, 9], allowed=[0, 8, 9, 10]) == {}
    assert cores_beside([0, 8]) == {}
    assert cores_beside(range(8)) == {}
    assert cores_beside([]) == {}


def test_a_kernel_that_knows_no_memory_nodes_has_one(kernel: Kernel) -> None:
    shutil.rmtree(kernel.folder / "system")
    assert cores_beside([2, 3]) == {}  # nor does it tell its cores
    kernel.write("system/cpu/present", "0-11")
    assert cores_beside([2, 3]) == {2: 4, 3: 5}
    assert cores_beside([7]) == {7: 8}


def test_threads_of_a_physical_core_are_again_those_of_one(kernel: Kernel) -> None:
    for core in range(12):
        kernel.write(
            f"system/cpu/cpu{core}/topology/thread_siblings_list", f"{core & ~1}-{core | 1}"
        )
    assert cores_beside([0]) == {0: 2}  # not its sibling, as long as there are others
    assert cores_beside([0, 3]) == {0: 4, 3: 6}
    assert cores_beside([2, 3]) == {2: 4, 3: 5}
    assert cores_beside([8], allowed=[8, 9]) == {8: 9}
    assert cores_beside([8, 9], allowed=[1, 8, 9, 10]) == {}


@pytest.mark.parametrize("maker", ["Intel", "ARM"])
def test_cores_beside_are_of_the_same_kind(kernel: Kernel, maker: str) -> None:
    if maker == "Intel":
        kernel.write("cpu_atom/cpus", "2-5")
    else:
        for core in range(12):
            kernel.write(f"system/cpu/cpu{core}/cpu_capacity", "512" if 2 <= core < 6 else "1024")
    assert cores_beside([1]) == {1: 6}
    assert cores_beside([5]) == {5: 2}
    assert cores_beside([1, 2]) == {1: 6, 2: 3}
    assert cores_beside([2, 3, 4]) == {}


@pytest.mark.parametrize(("microseconds", "found"), [(150_000, {}), (200_000, {1: 2})])
def test_there_are_none_where_a_limit_of_cpus_would_slow_both_sides(
    kernel: Kernel, microseconds: int, found: dict[int, int]
) -> None:
    kernel.write("cpu.max", f"{microseconds} 100000")
    assert cores_beside([1]) == found


FIXED = {
    "host",
    "system",
    "kernel",
    "architecture",
    "cpu",
    "cores",
    "core_kinds",
    "memory",
    "virtual_machine",
    "cgroup_limits",
    "gpu_driver",
}
CHANGING = {
    "affinity",
    "governor",
    "boost",
    "frequency",
    "load_average",
    "memory_available",
    "temperature",
    "thread_settings",
    "gpus",
}


def test_every_fact_is_read_or_its_absence_explained() -> None:
    state = machine_state()
    unavailable = state.pop("unavailable")
    assert set(state) | set(unavailable) == FIXED | CHANGING
    assert not set(state) & set(unavailable)
    assert all(unavailable.values())
    assert state["cpu"]["model"]


def test_a_fact_that_raises_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise NotImplementedError("can't find current frequency file")

    monkeypatch.setattr(psutil, "cpu_freq", fail)
    reason = machine_state()["unavailable"]["frequency"]
    assert reason == "NotImplementedError: can't find current frequency file"


def test_the_state_is_json() -> None:
    state = machine_state()
    text = json.dumps(state, allow_nan=False)
    assert json.loads(text) == state


@pytest.mark.parametrize(
    "text",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.104.05  Release Build  (a@b)",
    ],
)
def test_the_driver_of_a_gpu_is_read_without_nvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    path = tmp_path / "version"
    path.write_text(f"{text}\nGCC version:  gcc version 12.2.0\n")
    monkeypatch.setattr(machine, "_NVIDIA_DRIVER", path)
    assert machine._gpu_driver() == "535.104.05"


def test_thread_settings_are_the_variables_of_thread_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert machine_state()["thread_settings"]["OMP_NUM_THREADS"] == "3"


def test_what_is_left_of_a_container_s_memory_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text(f"{1 << 20}\n")
    (tmp_path / "memory.current").write_text(f"{700 << 10}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {100 << 10}\n")
    monkeypatch.setattr(memory, "cgroup_folders", lambda: [tmp_path])
    assert memory.available_memory() == (1 << 20) - (600 << 10)


def test_the_tightest_cgroup_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    inner = outer / "inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner / "memory.max").write_text("1073741824\n")
    (outer / "cpu.max").write_text("150000 100000\n")
    (outer / "memory.max").write_text("max\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    monkeypatch.setattr(machine, "cgroup_folders", lambda: [inner, outer, tmp_path])
    assert machine._cgroup_limits() == {"cpus": 1.5, "memory": 1 << 30}


def test_a_memory_limit_above_that_of_the_machine_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    monkeypatch.setattr(machine, "cgroup_folders", lambda: [tmp_path])
    assert machine._cgroup_limits() == {"cpus": None, "memory": None}


def test_the_busy_share_is_that_of_the_time_since_the_start() -> None:
    times = CpuTimes()
    shares = times.shares()
    while not shares["busy"]:
        sum(range(100_000))
        shares = times.shares()
    assert 0 < shares["busy"] <= 1
    assert shares["steal"] is None or 0 <= shares["steal"] <= 1


def test_the_state_of_a_gpu_has_what_it_refuses_with_the_reason(driver: Driver) -> None:
    driver.says(H200, "reasons !3", "process 101 ?")
    (gpu,) = machine_state()["gpus"]
    assert gpu["name"] == "NVIDIA H200"
    assert (gpu["power"], gpu["instant_power"]) == (412.3, 430)
    assert gpu["processes"] == [101]
    assert gpu["unavailable"] == {"throttle_reasons": "Not Supported"}
    assert driver.users == 0


def test_a_sliced_gpu_has_the_state_of_each_slice(driver: Driver) -> None:
    driver.says(SLICED)
    first, second = machine_state()["gpus"]
    assert (first["uuid"], second["uuid"]) == ("MIG-11", "MIG-22")
    assert first["memory"] == 16 << 30
    assert first["sm_clock"] == second["sm_clock"] == 1980
    assert second["processes"] == [202]


def test_nvml_without_a_driver_is_a_reason(driver: Driver) -> None:
    driver.says("init !9", H200)
    assert machine_state()["unavailable"]["gpus"] == "NVML: Driver Not Loaded"


def test_fast_and_slow_cores_are_told_where_there_are_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus = tmp_path / "system" / "cpu"
    monkeypatch.setattr(machine, "_CPU", cpus)
    assert machine._core_kinds() == {}
    for kind, text in {"cpu_core": "0-2\n", "cpu_atom": "3,5-6\n"}.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "cpus").write_text(text)
    assert machine._core_kinds() == {"cpu_core": [0, 1, 2], "cpu_atom": [3, 5, 6]}


def test_cores_of_arm_are_told_by_their_capacity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus = tmp_path / "system" / "cpu"
    monkeypatch.setattr(machine, "_CPU", cpus)
    for core, capacity in enumerate([1024, 1024, 446, 446]):
        (cpus / f"cpu{core}").mkdir(parents=True)
        (cpus / f"cpu{core}" / "cpu_capacity").write_text(f"{capacity}\n")
    assert machine._core_kinds() == {"capacity 1024": [0, 1], "capacity 446": [2, 3]}
    (cpus / "cpu2" / "cpu_capacity").write_text("1024\n")
    (cpus / "cpu3" / "cpu_capacity").write_text("1024\n")
    assert machine._core_kinds() == {}
