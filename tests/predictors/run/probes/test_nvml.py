"""The probe ``nvml``, above a stub of the driver."""

from __future__ import annotations

import sys

import pytest
from mlms_predictors._run.probes import nvml, open_probe

from tests.support.driver import H200, SLICED, Driver
from tests.support.probes import refusal, values

pytest.importorskip("pynvml")


@pytest.fixture(autouse=True)
def _between_calls_only(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml.Nvml, "period", None)


def test_counters_are_read_in_their_units_and_missing_ones_named(driver: Driver) -> None:
    driver.says(H200, "energy !3", "temperature.0 !15")
    with open_probe("nvml", "cuda:0", "hardware") as probe:
        probe.between()
    found = {series.name: series.values for series in probe.series}
    assert found["gpu power"] == [412.3]
    assert found["gpu instant power"] == [430]
    assert found["gpu sm clock"] == [1980]
    assert found["gpu memory used"] == [1 << 30]
    assert probe.missing == {"gpu energy": "Not Supported", "gpu temperature": "GPU is lost"}
    assert set(found) | set(probe.missing) == set(nvml.Nvml.units)
    assert driver.users == 0


@pytest.mark.parametrize(("steps", "kept"), [(9, False), (10, True)])
def test_energy_of_a_few_steps_of_its_counter_is_dropped(
    driver: Driver, steps: int, kept: bool
) -> None:
    with open_probe("nvml", "cuda:0", "hardware") as probe:
        for step in range(steps + 1):
            driver.says(H200, f"energy {5000 + 100 * step}")
            probe.between()
            probe.between()
    assert ("gpu energy" not in probe.missing) is kept
    if kept:
        assert values(probe, "gpu energy")[0] == 5
    else:
        assert (
            probe.missing["gpu energy"] == "the counter advanced 9 times, and takes 10 to be right"
        )


def test_a_slice_has_memory_of_its_own_and_no_energy(driver: Driver) -> None:
    driver.says(SLICED, "energy 7000")
    with open_probe("nvml", "cuda:1", "hardware") as probe:
        probe.between()
    assert values(probe, "gpu memory used") == [32 << 20]
    assert values(probe, "gpu sm clock") == [1980]
    assert values(probe, "gpu power") == [412.3]
    assert probe.missing["gpu utilisation"] == "Not Supported"
    assert "whole GPU, and this is a slice of it" in probe.missing["gpu energy"]


def test_a_device_that_cuda_does_not_show_is_the_reason(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert "NVML has no cuda:0" in refusal("nvml", "cuda:0")
    assert driver.users == 0


@pytest.mark.parametrize("name", ["nvml", "gpm"])
def test_a_package_that_is_not_installed_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install 'nvidia-ml-py>=12'" in refusal(name, "cuda:0")


def test_a_machine_without_a_driver_is_the_reason(driver: Driver) -> None:
    driver.says("init !9", H200)
    assert "NVML: Driver Not Loaded; is the NVIDIA driver there?" in refusal("nvml", "cuda:0")
