"""Items on a GPU: what the driver tells of it decides whether they can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cupti import compile_cupti
from tests.support.driver import H200, Driver
from tests.support.project import Project

pytest.importorskip("pynvml")


@pytest.fixture
def on_gpu(project: Project, driver: Driver) -> Project:
    """A project whose model runs on cuda:0 by the predictor labour."""
    project.edit("onnxruntime >=1.17", "labour")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("devices: [cpu]", "devices: [cuda]")
    same = "CUDA_VISIBLE_DEVICES: GPU-aa"  # all that pytest sees
    env = f"env: {{LABOUR_EVENTS: '0.001', MLMS_STUB_GPUS: {driver.script}, {same}}}"
    stack = f"gpu: {{framework: labour, interpreter: current, {env}}}\n"
    (project.folder / "stacks.yaml").write_text(stack)
    project.set_thresholds("  latency_p50: {max: 1000 s}\n  soak_threads: {max: 1000}")
    return project


def run(project: Project, *arguments: str) -> tuple[pytest.RunResult, list[dict[str, Any]]]:
    result = project.run("--mlms-stack=gpu", *arguments)
    return result, project.items()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("-k", "performance and single"), id="performance"),
        pytest.param(("-k", "soak", "--mlms-soak=3s"), id="soak", marks=pytest.mark.slow),
    ],
)
def test_an_item_on_a_gpu_that_was_too_hot_is_invalid_and_keeps_what_was_measured(
    on_gpu: Project, driver: Driver, options: tuple[str, ...]
) -> None:
    driver.says(H200, "field.270 0+200000000")
    result, items = run(on_gpu, *options)
    assert items
    result.assert_outcomes(failed=len(items))
    text = "*what was measured can't be trusted; throttled: it was too hot (hardware) for * of the*"
    result.stdout.fnmatch_lines([text])
    for item in items:
        assert item["verdict"] == item["limits"][0]["verdict"] == "INVALID"
        assert item["estimates"][item["limits"][0]["quantity"]]["value"] < 1000
        assert item["gpu_readings"][-1]["slowed"]["it was too hot (hardware)"] > 0.1


def test_an_item_without_limits_is_invalid_on_a_gpu_that_was_too_hot(
    on_gpu: Project, driver: Driver
) -> None:
    on_gpu.set_thresholds()
    driver.says(H200, "reasons 0x20")
    result, items = run(on_gpu, "-k", "performance and single")
    result.assert_outcomes(failed=1)
    assert {item["verdict"] for item in items} == {"INVALID"}
    assert all(item["estimates"]["latency_p50"]["value"] > 0 for item in items)


def test_the_power_limit_is_told_and_is_no_failure(on_gpu: Project, driver: Driver) -> None:
    driver.says(H200, "field.74 0+400000000", "reasons 0x4")
    processes = ("--mlms-processes=2", "--mlms-full", "--mlms-duration=0.1")
    result, items = run(on_gpu, "-k", "performance and single", *processes)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["*at its power limit for * % of the time; whether other programs *: *"]
    )
    (item,) = items
    facts, cache, limit, _ = item["gpu_notes"]
    assert facts == "GPU 1980 MHz, 412 W, 47 °C"
    assert cache.startswith("L2 hot (")
    assert limit in item["doubts"]
    idle, *busy = item["gpu_readings"]
    assert not idle["loaded"]
    assert [reading["loaded"] for reading in busy] == [True] * len(item["processes"])
    assert item["device_uuid"] == "GPU-aa00"
    assert idle["instant_power"] == 430
    assert all(0 < process["energy_period"] < 1 for process in item["processes"])


def test_a_trace_of_kernels_without_one_kernel_is_told(
    on_gpu: Project, driver: Driver, driver_libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(compile_cupti(driver_libraries)))
    result, (item,) = run(on_gpu, "-k", "trace", "--mlms-trace=kernel", "--mlms-strict")
    result.assert_outcomes(failed=1)
    seen = "cupti: not one kernel or copy was seen on cuda:0: another profiler in the process took"
    assert item["trace"]["unseen"]["kernel"].startswith(seen)
    assert item["trace"]["gpu"] is None
