"""The probe ``gpm``, above a stub of the driver."""

from __future__ import annotations

import types

import pytest
from mlms_predictors._run.probes import gpm, open_probe

from tests.support.driver import H200, SLICED, Driver
from tests.support.probes import refusal, values

pytest.importorskip("pynvml")

HOPPER = f"""{H200}
gpm 1
metric.2 0+81.5
metric.3 0+43.25
metric.20 0+512
"""
ALL = "".join(f"metric.{number} 0\n" for number in range(1, 32))


@pytest.fixture(autouse=True)
def _between_calls_only(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.says(H200, "gpm 1", ALL, HOPPER.partition("gpm 1")[2], "metric.4 !3")
    monkeypatch.setattr(gpm.Gpm, "period", None)


def use_times(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    """Have a clock that shows these times and then the last one."""
    clock = list(times)

    def perf_counter() -> float:
        return clock.pop(0) if len(clock) > 1 else clock[0]

    monkeypatch.setattr(gpm, "time", types.SimpleNamespace(perf_counter=perf_counter))


def test_a_reading_is_the_mean_between_two_samples(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_times(monkeypatch, 10.0, 10.05, 10.2, 10.3, 10.5, 10.6)
    with open_probe("gpm", "cuda:0", "hardware") as probe:
        probe.between()  # 0.05 s after the first sample: too short
        probe.between()
        probe.between()
    assert values(probe, "gpu sm busy") == pytest.approx([81.5, 81.5], rel=1e-3)
    assert values(probe, "gpu sm occupancy") == pytest.approx([43.25, 43.25], rel=1e-3)
    assert values(probe, "gpu pcie sent") == pytest.approx([512.0, 512.0], rel=1e-3)
    assert probe.missing == {"gpu integer busy": "Not Supported"}
    assert probe.fault == ""
    assert {series.unit for series in probe.series} == {"%", "MiB/s"}
    assert driver.users == 0


def test_a_slice_has_metrics_of_its_own(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, slices = SLICED.split("mig ", 1)
    driver.says(whole, "gpm 1", ALL, f"mig {slices}", ALL, "metric.2 0+20")
    use_times(monkeypatch, 10.0, 10.2)
    with open_probe("gpm", "cuda:1", "hardware") as probe:
        probe.between()
    assert values(probe, "gpu sm busy") == pytest.approx([20], rel=1e-3)
    assert probe.missing == {}


def test_a_time_that_is_too_short_has_no_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    use_times(monkeypatch, 10.0)
    with open_probe("gpm", "cuda:0", "hardware") as probe:
        probe.between()
    assert probe.series == []
    reasons = set(probe.missing.values())
    assert reasons == {"observed for less than 0.1 s, in which there is no reading"}


def test_a_gpu_before_hopper_is_the_reason(driver: Driver) -> None:
    driver.says(H200, "gpm 0")
    assert "before Hopper" in refusal("gpm", "cuda:0")
    assert driver.users == 0


def test_a_driver_without_performance_monitoring_is_the_reason(driver: Driver) -> None:
    driver.says(H200, "gpm !13")
    assert "performance monitoring: Function Not Found" in refusal("gpm", "cuda:0")
