"""The probe ``nvml``, tested with a hand-written fake of pynvml; no GPU has run it."""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

import pytest
from mlms_predictors._run.probes import nvml, open_probe

from tests.support.probes import refusal, values


class NVMLError(Exception):
    """An error of the driver."""


class FakeNvml(types.ModuleType):
    """The part of pynvml that the probe uses, with one GPU that has no energy counter."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.open = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return "GPU-aa11"

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return types.SimpleNamespace(gpu=97, memory=41)

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return {1: 1980, 2: 2619}[kind]

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 412_300

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        raise NVMLError("Not Supported")

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 47

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return types.SimpleNamespace(used=1 << 30)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(nvml.Nvml, "period", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def test_counters_are_read_in_their_units_and_missing_ones_named(fake: FakeNvml) -> None:
    with open_probe("nvml", "cuda:0", "hardware") as probe:
        probe.between()
    found = {series.name: series.values for series in probe.series}
    assert found["gpu power"] == [412.3]
    assert found["gpu sm clock"] == [1980]
    assert found["gpu memory used"] == [1 << 30]
    assert probe.missing == {"gpu energy": "Not Supported"}
    assert set(found) | set(probe.missing) == set(nvml.Nvml.units)
    assert fake.open == 0


@pytest.mark.parametrize(("seconds", "kept"), [(0.05, False), (0.5, True)])
def test_energy_of_less_than_a_tenth_of_a_second_is_dropped(
    fake: FakeNvml, monkeypatch: pytest.MonkeyPatch, seconds: float, kept: bool
) -> None:
    monkeypatch.setattr(
        fake, "nvmlDeviceGetTotalEnergyConsumption", lambda handle: 5000, raising=False
    )
    clock = iter([10.0, 10.0 + seconds])
    monkeypatch.setattr(nvml, "time", types.SimpleNamespace(perf_counter=lambda: next(clock)))
    with open_probe("nvml", "cuda:0", "hardware") as probe:
        probe.between()
    assert ("gpu energy" in probe.missing) != kept
    if kept:
        assert values(probe, "gpu energy") == [5.0]


def test_a_device_that_cuda_does_not_show_is_the_reason(
    fake: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert "NVML has no cuda:0" in refusal("nvml", "cuda:0")
    assert fake.open == 0


@pytest.mark.parametrize("name", ["nvml", "gpm"])
def test_a_package_that_is_not_installed_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install nvidia-ml-py" in refusal(name, "cuda:0")


def test_a_machine_without_a_driver_is_the_reason() -> None:
    pytest.importorskip("pynvml")
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        assert "NVIDIA driver" in refusal("nvml", "cuda:0")
    else:
        pytest.skip("this machine has an NVIDIA driver")
