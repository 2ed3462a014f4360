"""Memory and a stream of a GPU, over a hand-written fake of the driver; no GPU has run it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from mlms_predictors._run.cuda import Device


class Driver:
    """The driver's functions, whose memory is that of this process."""

    def __init__(self) -> None:
        self.blocks: dict[int, Any] = {}
        self.log: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.log.append(name)
            return 0

        return call

    def cuStreamCreate(self, stream: Any, flags: Any) -> int:
        assert flags.value == 1
        stream._obj.value = 77
        return 0

    def cuMemAlloc_v2(self, address: Any, size: Any) -> int:
        if size.value > 1 << 40:
            return 2
        block = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(block)
        self.blocks[address._obj.value] = block
        return 0

    def cuMemFree_v2(self, address: Any) -> int:
        del self.blocks[address.value]
        return 0

    def cuMemcpyHtoDAsync_v2(self, target: Any, source: Any, size: Any, stream: Any) -> int:
        assert stream.value == 77
        ctypes.memmove(target.value, source.value, size.value)
        return 0

    def cuMemcpyDtoHAsync_v2(self, target: Any, source: Any, size: Any, stream: Any) -> int:
        return self.cuMemcpyHtoDAsync_v2(target, source, size, stream)

    def cuGetErrorString(self, status: int, text: Any) -> int:
        if status == 2:
            text._obj.value = b"out of memory"
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    return driver


def test_arrays_are_copied_there_and_back(driver: Driver) -> None:
    device = Device(0)
    source = np.arange(6, dtype=np.float32)
    target = np.empty_like(source)
    address = device.allocate(source.nbytes)
    device.upload(address, source)
    device.download(target, address)
    device.synchronize()
    assert np.array_equal(source, target)
    device.free(address)
    device.close()
    assert driver.blocks == {}
    assert driver.log[-1] == "cuDevicePrimaryCtxRelease_v2"


def test_no_bytes_have_an_address(driver: Driver) -> None:
    assert Device(0).allocate(0)


def test_an_error_has_the_drivers_message(driver: Driver) -> None:
    with pytest.raises(RuntimeError, match="cuMemAlloc_v2: out of memory"):
        Device(0).allocate(1 << 50)


def test_an_error_without_a_message_has_its_number(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "cuInit", lambda flags: 999, raising=False)
    with pytest.raises(RuntimeError, match="cuInit: error 999"):
        Device(0)


def test_a_machine_without_a_driver_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(RuntimeError, match="no CUDA driver here"):
        Device(0)
