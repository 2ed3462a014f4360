from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.host import machine
from pytest_mlms.host.machine import CpuTimes, machine_state

FACTS = {
    *(
        "host",
        "system",
        "kernel",
        "architecture",
        "cpu",
        "cores",
        "memory",
        "virtual_machine",
        "cgroup_limits",
    ),
    *(
        "affinity",
        "governor",
        "boost",
        "frequency",
        "load_average",
        "memory_available",
        "temperature",
    ),
    *("thread_settings", "gpus"),
}


def test_every_fact_is_read_or_its_absence_explained() -> None:
    state = machine_state()
    assert set(state) - {"unavailable"} | set(state["unavailable"]) == FACTS
    assert not set(state) & set(state["unavailable"])
    assert all(state["unavailable"].values())
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    assert state["cpu"]["model"]


def test_the_tightest_cgroup_limit_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner / "memory.max").write_text("1073741824\n")
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "outer" / "memory.max").write_text("max\n")
    (tmp_path / "cpu.cfs_quota_us").write_text("-1\n")
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    monkeypatch.setattr(machine, "_cgroup_folders", lambda: [inner, tmp_path / "outer", tmp_path])
    assert machine._cgroup_limits() == {"cpus": 1.5, "memory": 1 << 30}


def test_the_busy_share_is_that_of_the_stretch() -> None:
    times = CpuTimes()
    while (shares := times.shares())["busy"] is None or shares["busy"] == 0:
        sum(range(100_000))
    assert 0 < shares["busy"] <= 1
    assert shares["steal"] is None or 0 <= shares["steal"] <= 1


class RecordedNvml:
    """NVML's answers as NVIDIA documents them for one GPU, one of its readings refused."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlSystemGetDriverVersion": "580.1",
            "nvmlDeviceGetMemoryInfo": type("Memory", (), {"total": 150 << 30}),
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetPowerUsage": 76_500,
            "nvmlDeviceGetTemperature": 31,
            "nvmlDeviceGetComputeRunningProcesses": [type("Process", (), {"pid": 42})],
        }

        def answer(*_: object) -> Any:
            if name not in answers:
                raise self.NVMLError("Not Supported")
            return answers[name]

        return answer


def test_a_gpus_state_is_read_and_what_it_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", RecordedNvml())
    (gpu,) = machine_state()["gpus"]
    assert (gpu["name"], gpu["power"], gpu["processes"]) == ("NVIDIA H200", 76.5, [42])
    assert gpu["unavailable"] == {"throttle_reasons": "Not Supported"}


def test_nvml_without_a_driver_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = RecordedNvml()

    def refuse() -> None:
        raise nvml.NVMLError("Driver Not Loaded")

    nvml.nvmlInit = refuse  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "pynvml", nvml)
    assert machine_state()["unavailable"]["gpus"] == "NVML: Driver Not Loaded"
