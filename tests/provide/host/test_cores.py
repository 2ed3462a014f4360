"""Cores near others, by what the kernel tells of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pytest_mlms.provide.host import cores
from pytest_mlms.provide.host.cores import cores_beside


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
    monkeypatch.setattr(cores, "_DEVICES", tmp_path)
    monkeypatch.setattr(cores, "cgroup_folders", lambda: [tmp_path])
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
