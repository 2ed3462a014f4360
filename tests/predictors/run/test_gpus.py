"""GPUs as CUDA_VISIBLE_DEVICES selects them; NVML is a hand-written fake."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from mlms_predictors._run.gpus import (
    count_gpus,
    gpu_devices,
    open_gpu_handle,
    visible_gpus,
)

UUIDS = ["GPU-aa11", "GPU-ab22", "GPU-cc33"]


class FakeNvml:
    """The functions of pynvml that find a GPU."""

    def __init__(self, *uuids: str | bytes) -> None:
        self.uuids = uuids

    def nvmlDeviceGetCount(self) -> int:
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetUUID(self, handle: int) -> str | bytes:
        return self.uuids[handle]


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
    assert visible_gpus(UUIDS, visible_devices) == positions


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
    assert visible_gpus(UUIDS, visible_devices) == positions


@pytest.mark.parametrize(
    ("visible_devices", "handle"), [(None, 1), ("2,GPU-aa", 0), ("0,MIG-7", "MIG-7")]
)
def test_nvml_opens_the_gpu_that_cuda_numbers(
    monkeypatch: pytest.MonkeyPatch, visible_devices: str | None, handle: Any
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible_devices is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible_devices)
    assert open_gpu_handle(FakeNvml(*UUIDS), 1) == handle


def test_old_nvml_gives_uuids_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-bb")
    assert open_gpu_handle(FakeNvml(b"GPU-aa", b"GPU-bb"), 0) == 1


def test_a_number_that_cuda_does_not_show_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,-1")
    with pytest.raises(LookupError, match="no cuda:1 among 1 visible GPUs; .* is '0,-1'"):
        open_gpu_handle(FakeNvml(*UUIDS), 1)


def test_no_gpus_are_counted_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert count_gpus() == 0


@pytest.mark.parametrize(("initialized", "count"), [(0, 2), (100, 0)])
def test_gpus_are_counted_by_the_driver(
    monkeypatch: pytest.MonkeyPatch, initialized: int, count: int
) -> None:
    class Driver:
        def cuInit(self, flags: int) -> int:
            return initialized

        def cuDeviceGetCount(self, count: Any) -> int:
            count._obj.value = 2
            return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert count_gpus() == count


def test_gpus_are_devices_by_their_number() -> None:
    assert gpu_devices(2) == ["cuda:0", "cuda:1"]
    assert gpu_devices(0) == []
