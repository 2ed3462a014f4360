"""What a GPU was busy with, by NVML's performance monitoring.

Nvidia-ml-py's own code, over recorded samples.
"""

from __future__ import annotations

import ctypes
import types
from typing import Any

import pytest
from mlms_predictors._run.probes import Probe, ProbeUnavailable, gpm, open_probe

pynvml = pytest.importorskip("pynvml")


class Driver:
    """NVML's C functions as nvidia-ml-py finds them, with the samples of one GPU.

    Each is (SM, occupancy, PCIe sent).
    """

    def __init__(self, *samples: tuple[float, float, float], supported: bool = True) -> None:
        self.samples, self.supported = list(samples), supported
        self.taken: dict[int, tuple[float, float, float]] = {}
        self.free = [
            ctypes.cast(ctypes.create_string_buffer(8), pynvml.c_nvmlGpmSample_t) for _ in range(2)
        ]
        self.pairs: list[Any] = []

    def __call__(self, name: str) -> Any:
        return getattr(self, name, lambda *arguments: 0)

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

    def nvmlGpmMetricsGet(self, asked: Any) -> int:
        """Answer as NVML does: the metrics asked for, of two samples, and that the GPU has no
        integer counter.
        """
        asked = asked._obj
        pair = [
            self.taken[ctypes.addressof(one.contents)] for one in (asked.sample1, asked.sample2)
        ]
        self.pairs.append(pair)
        values = dict(zip((2, 3, 20), pair[1], strict=True))
        assert asked.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = values.get(metric.metricId, 0.0)
            metric.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if metric.metricId == 4 else 0
        return 0


def values(probe: Probe, name: str) -> list[float]:
    return next(list(series.values) for series in probe.series if series.name == name)


def use_driver(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", driver)
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(gpm.Gpm, "period", None)


def test_what_a_gpu_was_busy_with_is_that_between_two_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver((1.0, 1.0, 1.0), (81.5, 43.25, 512.0), (90.0, 50.0, 640.0))
    use_driver(monkeypatch, driver)
    clock = iter([10.0, 10.05, 10.2, 10.3, 10.5, 10.6])
    monkeypatch.setattr(gpm, "time", types.SimpleNamespace(perf_counter=lambda: next(clock)))
    with open_probe("gpm", "cuda:0", "hardware") as probe:
        probe.between()  # 0.05 s behind the first sample: too short
        probe.between()
        probe.between()
    assert values(probe, "gpu sm busy") == [81.5, 90.0]
    assert values(probe, "gpu sm occupancy") == [43.25, 50.0]
    assert values(probe, "gpu pcie sent") == [512.0, 640.0]
    assert [pair[0][0] for pair in driver.pairs] == [1.0, 81.5], (
        "each sample is the next one's first"
    )
    assert probe.missing == {"gpu integer busy": "Not Supported"}
    assert probe.fault == ""
    assert {series.unit for series in probe.series} == {"%", "MiB/s"}
    assert len(driver.free) == 2


def test_a_gpu_watched_too_shortly_has_no_averages_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_driver(monkeypatch, Driver((1.0, 1.0, 1.0)))
    monkeypatch.setattr(gpm, "time", types.SimpleNamespace(perf_counter=lambda: 10.0))
    with open_probe("gpm", "cuda:0", "hardware") as probe:
        probe.between()
    assert probe.series == []
    assert set(probe.missing.values()) == {
        "watched for less than 0.1 s, in which there is no reading"
    }


def test_a_gpu_before_hopper_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    use_driver(monkeypatch, Driver(supported=False))
    with (
        pytest.raises(ProbeUnavailable, match="before Hopper"),
        open_probe("gpm", "cuda:0", "hardware"),
    ):
        pass


def test_a_driver_without_performance_monitoring_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    use_driver(monkeypatch, driver)
    monkeypatch.setattr(driver, "nvmlGpmQueryDeviceSupport", lambda *arguments: 13, raising=False)
    with pytest.raises(ProbeUnavailable, match="performance monitoring: Function Not Found"):
        open_probe("gpm", "cuda:0", "hardware").__enter__()
