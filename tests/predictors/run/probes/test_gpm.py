"""The probe ``gpm``: nvidia-ml-py's own code over a hand-written fake of the driver."""

from __future__ import annotations

import ctypes
import types
from typing import Any

import pytest
from mlms_predictors._run.probes import gpm, open_probe

from tests.support.probes import refusal, values

pynvml = pytest.importorskip("pynvml")

Sample = tuple[float, float, float]
"""SM, occupancy, PCIe sent: the metrics 2, 3 and 20."""


class Driver:
    """NVML's C functions as nvidia-ml-py finds them, with the samples of one GPU."""

    def __init__(self, *samples: Sample, supported: bool = True) -> None:
        self.samples = list(samples)
        self.supported = supported
        self.taken: dict[int, Sample] = {}
        self.free = [self.make_sample(), self.make_sample()]
        self.pairs: list[list[Sample]] = []

    def make_sample(self) -> Any:
        return ctypes.cast(ctypes.create_string_buffer(8), pynvml.c_nvmlGpmSample_t)

    def __call__(self, name: str) -> Any:
        return getattr(self, name, lambda *arguments: 0)

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def nvmlGpmQueryDeviceSupport(self, device: Any, support: Any) -> int:
        support._obj.isSupportedDevice = self.supported
        return 0

    def nvmlGpmSampleAlloc(self, sample: Any) -> int:
        ctypes.memmove(sample, ctypes.byref(self.free.pop()), ctypes.sizeof(ctypes.c_void_p))
        return 0

    def nvmlGpmSampleFree(self, sample: Any) -> int:
        self.free.append(sample)
        return 0

    def nvmlGpmSampleGet(self, device: Any, sample: Any) -> int:
        self.taken[ctypes.addressof(sample.contents)] = self.samples.pop(0)
        return 0

    def nvmlGpmMetricsGet(self, argument: Any) -> int:
        """Answer with the metrics of two samples; the GPU has no integer counter."""
        request = argument._obj
        assert request.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        pair = []
        for sample in (request.sample1, request.sample2):
            pair.append(self.taken[ctypes.addressof(sample.contents)])
        self.pairs.append(pair)
        metrics = dict(zip((2, 3, 20), pair[1], strict=True))
        for metric in request.metrics[: request.numMetrics]:
            metric.value = metrics.get(metric.metricId, 0.0)
            metric.nvmlReturn = 0
            if metric.metricId == 4:
                metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
        return 0


def use(monkeypatch: pytest.MonkeyPatch, driver: Driver, *times: float) -> Driver:
    """Have this driver, and a clock that shows these times and then the last one."""
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", driver)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(gpm.Gpm, "period", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if times:
        clock = list(times)

        def perf_counter() -> float:
            return clock.pop(0) if len(clock) > 1 else clock[0]

        monkeypatch.setattr(gpm, "time", types.SimpleNamespace(perf_counter=perf_counter))
    return driver


def test_a_reading_is_of_the_time_between_two_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [(1.0, 1.0, 1.0), (81.5, 43.25, 512.0), (90.0, 50.0, 640.0)]
    driver = use(monkeypatch, Driver(*samples), 10.0, 10.05, 10.2, 10.3, 10.5, 10.6)
    with open_probe("gpm", "cuda:0", "hardware") as probe:
        probe.between()  # 0.05 s after the first sample: too short
        probe.between()
        probe.between()
    assert values(probe, "gpu sm busy") == [81.5, 90.0]
    assert values(probe, "gpu sm occupancy") == [43.25, 50.0]
    assert values(probe, "gpu pcie sent") == [512.0, 640.0]
    assert [pair[0] for pair in driver.pairs] == samples[:2], "a sample is the next pair's first"
    assert probe.missing == {"gpu integer busy": "Not Supported"}
    assert probe.fault == ""
    assert {series.unit for series in probe.series} == {"%", "MiB/s"}
    assert len(driver.free) == 2


def test_a_time_that_is_too_short_has_no_averages(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Driver((1.0, 1.0, 1.0)), 10.0)
    with open_probe("gpm", "cuda:0", "hardware") as probe:
        probe.between()
    assert probe.series == []
    reasons = set(probe.missing.values())
    assert reasons == {"observed for less than 0.1 s, in which there is no reading"}


def test_a_gpu_before_hopper_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, Driver(supported=False))
    assert "before Hopper" in refusal("gpm", "cuda:0")


def test_a_driver_without_performance_monitoring_is_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = use(monkeypatch, Driver())
    monkeypatch.setattr(driver, "nvmlGpmQueryDeviceSupport", lambda *arguments: 13)
    assert "performance monitoring: Function Not Found" in refusal("gpm", "cuda:0")
