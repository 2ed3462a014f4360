"""GPUs and their slices as CUDA_VISIBLE_DEVICES selects them, above a stub of the driver."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest
from mlms_predictors._run import gpus
from mlms_predictors._run.gpus import (
    Gpu,
    count_gpus,
    field_value,
    gpu_devices,
    instant_power,
    l2_bytes,
    list_gpus,
    open_gpu_handle,
    take_as_needed,
    visible_gpus,
    whole_gpu,
)

from tests.support.driver import H200, SLICED, Driver

pynvml = pytest.importorskip("pynvml")

GPUS = [Gpu("GPU-aa11"), Gpu("GPU-ab22"), Gpu("GPU-cc33")]
SLICES = (Gpu("MIG-11"), Gpu("MIG-12"))
WITH_SLICES = [Gpu("GPU-aa11"), Gpu("GPU-ab22", slices=SLICES), Gpu("GPU-cc33", slices=())]


@pytest.mark.parametrize(
    ("visible_devices", "positions"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("GPU-cc33", [2]),
        ("GPU-c", [2]),
        ("GPU-ab,0", [1, 0]),
    ],
)
def test_indices_and_beginnings_of_uuids_select_gpus_in_order(
    visible_devices: str | None, positions: list[int]
) -> None:
    assert visible_gpus(GPUS, visible_devices) == [GPUS[position] for position in positions]


@pytest.mark.parametrize(
    ("visible_devices", "positions"),
    [
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("7", []),
        ("GPU-a", []),  # two GPUs begin like this
        ("aa11", []),
        ("1,-1,0", [1]),
        ("0,GPU-dd,1", [0]),
    ],
)
def test_entries_are_ignored_from_the_first_that_names_no_gpu(
    visible_devices: str, positions: list[int]
) -> None:
    assert visible_gpus(GPUS, visible_devices) == [GPUS[position] for position in positions]


@pytest.mark.parametrize(
    ("visible_devices", "uuids"),
    [
        (None, ["GPU-aa11", "MIG-11", "MIG-12"]),
        ("MIG-12", ["MIG-12"]),
        ("MIG-12,MIG-11", ["MIG-12", "MIG-11"]),
        ("MIG-1", []),
        ("1", ["MIG-11", "MIG-12"]),
        ("GPU-ab", ["MIG-11", "MIG-12"]),
        ("2", []),
    ],
)
def test_a_gpu_in_mig_mode_stands_for_its_slices(
    visible_devices: str | None, uuids: list[str]
) -> None:
    assert [gpu.uuid for gpu in visible_gpus(WITH_SLICES, visible_devices)] == uuids


def test_gpus_and_slices_are_listed_as_nvml_tells_them(driver: Driver) -> None:
    driver.says(SLICED, "gpu GPU-bb11", "mig_mode !4")
    first, second = list_gpus()
    assert first.name == "NVIDIA H200"
    assert first.memory == 150754820096
    assert first.driver == "580.65.06"
    first_slice, second_slice = first.devices  # there is none at NVML's place 1
    assert first_slice.name == "NVIDIA H200 MIG 1g.18gb"
    assert second_slice.uuid == "MIG-22"
    assert second_slice.memory == 70 << 30
    assert second == Gpu("GPU-bb11", driver="580.65.06")
    assert driver.users == 0


@pytest.mark.parametrize("line", ["init !9", "init !18"])
def test_a_driver_that_fails_lists_no_gpus(driver: Driver, line: str) -> None:
    driver.says(line, H200)
    assert list_gpus() == []


def test_a_machine_without_a_driver_lists_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "NVML", "libno-driver.so.1")
    assert list_gpus() == []


@pytest.mark.parametrize(
    ("visible_devices", "uuid", "whole"),
    [
        (None, "MIG-22", "GPU-aa00"),
        ("1,GPU-aa", "MIG-11", "GPU-aa00"),
        ("MIG-22,1", "GPU-bb11", "GPU-bb11"),
        ("1,MIG-GPU-aa00/2/1", "MIG-22", "GPU-aa00"),
    ],
)
def test_nvml_opens_the_gpu_or_slice_of_a_number(
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    visible_devices: str | None,
    uuid: str,
    whole: str,
) -> None:
    driver.says(SLICED, "gpu GPU-bb11")
    if visible_devices is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible_devices)
    pynvml.nvmlInit()
    handle = open_gpu_handle(pynvml, 1)
    assert pynvml.nvmlDeviceGetUUID(handle) == uuid
    assert pynvml.nvmlDeviceGetUUID(whole_gpu(pynvml, handle)) == whole
    assert (whole_gpu(pynvml, handle) is handle) is (uuid == whole)


def test_a_number_that_cuda_does_not_show_is_an_error(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,-1")
    with pytest.raises(LookupError, match="no cuda:1 among 1 visible GPUs; .* is '0,-1'"):
        open_gpu_handle(pynvml, 1)


def test_a_field_is_read_by_the_type_that_it_has(driver: Driver) -> None:
    driver.says(H200, "field.269 5000000000")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert instant_power(pynvml, handle) == 430
    assert field_value(pynvml, handle, 269) == 5_000_000_000
    with pytest.raises(pynvml.NVMLError, match="Not Supported"):
        field_value(pynvml, handle, 270)


def test_no_gpus_are_counted_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert count_gpus() == 0


@pytest.mark.parametrize(("devices", "count", "cache"), [(2, 2, 62914560), (1, 1, 0), (0, 0, 0)])
def test_the_driver_of_cuda_tells_gpus_and_their_caches(
    driver: Driver, devices: int, count: int, cache: int
) -> None:
    driver.says(f"cuda {devices}", "l2 62914560")
    question = "from mlms_predictors._run.gpus import *; print(count_gpus(), l2_bytes('cuda:1'))"
    command = [sys.executable, "-c", question]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(count), str(cache)]
    assert l2_bytes("cpu") == 0


def test_gpus_are_devices_by_their_number() -> None:
    assert gpu_devices(2) == ["cuda:0", "cuda:1"]
    assert gpu_devices(0) == []


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ({}, {"GROWS": "true"}),
        ({"GROWS": "false"}, {"GROWS": "false"}),
        ({"FRACTION": "0.3"}, {"FRACTION": "0.3"}),
    ],
)
def test_the_users_own_setting_of_memory_counts(
    own: dict[str, str], found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(own))
    assert take_as_needed("GROWS", "true", ["FRACTION", "POOL"]) == found
    assert os.environ == found
