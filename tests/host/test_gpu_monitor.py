"""Readings of a GPU above a stub of the driver, and what follows from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_mlms.errors import Unavailable
from pytest_mlms.host.gpu_monitor import (
    GpuReading,
    gpu_notes,
    gpu_problems,
    open_gpu,
)
from tests.support.driver import H200, SLICED, Driver

pynvml = pytest.importorskip("pynvml")

IDLE = GpuReading(
    loaded=False,
    sm_clock=345,
    memory_clock=2619,
    power=74.6,
    power_limit=700.0,
    temperature=31,
    throttled=(),
    capped=(),
    processes=(),
)
BUSY = GpuReading(
    loaded=True,
    sm_clock=1980,
    memory_clock=2619,
    power=412.3,
    power_limit=700.0,
    temperature=47,
    throttled=(),
    capped=(),
    processes=(101, 102),
    instant_power=430.0,
)
OWN = {101, 102}


@pytest.fixture(autouse=True)
def _gpu(driver: Driver) -> None:
    driver.says(H200, "process 102 4096", "process 101 ?")


def read(device: str = "cuda:0") -> GpuReading:
    with open_gpu(device) as gpu:
        return gpu.read(loaded=True)


def test_a_reading_is_in_mhz_watts_and_degrees() -> None:
    assert read() == BUSY


def test_throttle_reasons_are_in_words(driver: Driver) -> None:
    driver.says(H200, "reasons 0x24")
    assert read().throttled == ("it was too hot (driver)",)
    assert read().capped == ("it was at its power limit",)


def test_a_value_that_the_driver_refuses_is_none_and_no_problem(driver: Driver) -> None:
    driver.says(H200, "power !3", "field.186 !3", "processes !4")
    reading = read()
    assert (reading.power, reading.instant_power, reading.processes) == (None, None, None)
    assert gpu_problems([replace(IDLE, processes=None), reading], OWN) == []


def test_a_slice_has_processes_of_its_own_and_the_clocks_of_its_gpu(driver: Driver) -> None:
    driver.says(SLICED, "clock.1 15", "reasons 0x1")
    reading = read("cuda:1")
    assert reading == replace(BUSY, processes=(202,))


@pytest.mark.parametrize(
    ("visible", "device", "clock"),
    [(None, "cuda:1", 1001), ("1, GPU-aa", "cuda", 1001), ("1, GPU-aa", "cuda:1", 1980)],
)
def test_the_gpu_is_the_one_that_cuda_numbers_so(
    driver: Driver,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    device: str,
    clock: int,
) -> None:
    driver.says(H200, "gpu GPU-bb11", "clock.1 1001")
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert read(device).sm_clock == clock


def test_a_quiet_run_has_no_problem() -> None:
    slightly_slower = replace(BUSY, sm_clock=1965)
    assert gpu_problems([IDLE, BUSY, slightly_slower, BUSY], OWN) == []


HOT = replace(BUSY, throttled=("it was too hot (driver)",))
SLOWER = replace(BUSY, sm_clock=1410)
LIMITED = replace(BUSY, power_limit=500.0)
IDLE_WITH_OTHER = replace(IDLE, processes=(77,))
BUSY_WITH_OTHER = replace(BUSY, processes=(101, 102, 77))


@pytest.mark.parametrize(
    ("readings", "problem"),
    [
        ([IDLE, HOT], "throttled: it was too hot (driver)"),
        ([IDLE_WITH_OTHER, BUSY], "other processes were on it: 77"),
        ([IDLE, BUSY_WITH_OTHER], "other processes were on it: 77"),
        ([IDLE, BUSY, SLOWER], "its clock changed from 1980 to 1410 MHz"),
        ([IDLE, BUSY, LIMITED], "its power limit was set anew: 500 W and 700 W"),
    ],
)
def test_a_disturbed_run_has_its_problem_named(readings: list[GpuReading], problem: str) -> None:
    assert gpu_problems(readings, OWN) == [problem]


def test_in_a_container_two_processes_with_other_pids_are_ours() -> None:
    assert gpu_problems([IDLE, replace(BUSY, processes=(9001, 9002))], {11, 12}) == []


def test_in_a_container_a_third_process_is_foreign() -> None:
    three = replace(BUSY, processes=(9001, 9002, 9003))
    problem = "other processes were on it: 9001, 9002, 9003"
    assert gpu_problems([IDLE, three], {11, 12}) == [problem]


def test_an_idle_clock_is_not_compared_with_that_of_work() -> None:
    assert gpu_problems([IDLE, BUSY], OWN) == []


def test_notes_are_of_the_gpu_at_work() -> None:
    assert gpu_notes([IDLE, BUSY]) == ["GPU 1980 MHz, 412 W, 47 °C"]


def test_notes_have_the_range_of_each_value_and_the_power_limit() -> None:
    capped = ("it was at its power limit",)
    later = replace(BUSY, sm_clock=1965, temperature=51, capped=capped)
    notes = gpu_notes([IDLE, BUSY, later])
    assert notes == ["GPU 1965 to 1980 MHz, 412 W, 47 to 51 °C", "it was at its power limit"]


def test_notes_of_a_driver_that_tells_nothing_are_empty() -> None:
    silent = replace(BUSY, sm_clock=None, power=None, temperature=None)
    assert gpu_notes([IDLE, silent]) == []


def test_a_machine_without_a_driver_is_unavailable(driver: Driver) -> None:
    driver.says("init !9", H200)
    message = "device cuda:0: the NVIDIA driver can't be asked for its state: Driver Not Loaded"
    with pytest.raises(Unavailable, match=message), open_gpu("cuda:0"):
        pass


def test_a_gpu_that_is_not_there_is_unavailable(driver: Driver) -> None:
    with pytest.raises(Unavailable, match="device cuda:7: there is no cuda:7"), open_gpu("cuda:7"):
        pass
    assert driver.users == 0
