"""Readings of a GPU above a stub of the driver, and what follows from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_mlms.core.errors import Unavailable
from pytest_mlms.provide.host.gpu_monitor import (
    GpuReading,
    gpu_facts,
    gpu_limits,
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
        return replace(gpu.read(loaded=True), seconds=0.0)


def test_a_reading_is_in_mhz_watts_and_degrees() -> None:
    assert read() == BUSY


def test_throttle_reasons_are_in_words(driver: Driver) -> None:
    driver.says(H200, "reasons 0x24")
    assert read().throttled == ("it was too hot (driver)",)
    assert read().capped == ("it was at its power limit",)


HELD = {74: "it was at its power limit", 75: "it was too hot (driver)"}
UNTIL_580_65 = {251: HELD[75], 252: "it was too hot (hardware)", 253: "the power supply braked it"}
LATER = {number + 18: reason for number, reason in UNTIL_580_65.items()}


@pytest.mark.parametrize("number", [*HELD, *UNTIL_580_65, *LATER])
def test_what_slowed_it_down_between_readings_is_counted(driver: Driver, number: int) -> None:
    reason = {**HELD, **UNTIL_580_65, **LATER}[number]
    driver.says(H200, f"field.{number} 7+400000000")
    with open_gpu("cuda:0") as gpu:
        reading = gpu.read(loaded=True)
    assert reading.throttled == ()
    assert list(reading.slowed) == [reason]
    assert 0 < reading.slowed[reason] <= 1
    expected = [] if reading.is_capped else [f"throttled: {reason} for 40 % of the time"]
    assert gpu_problems([replace(reading, slowed={reason: 0.4})], OWN) == expected


def test_settings_under_the_numbers_of_counters_are_no_slow_down(driver: Driver) -> None:
    driver.says(H200, *[f"field.{number} 90" for number in (*UNTIL_580_65, *LATER)])
    reading = read()
    assert set(reading.slowed.values()) == {0.0}
    assert gpu_problems([IDLE, reading], OWN) == []


def test_one_slow_down_without_a_cause_may_be_a_change_of_the_p_state(driver: Driver) -> None:
    with open_gpu("cuda:0") as gpu:
        driver.says(H200, "reasons 0x8")
        gpu.glance("a")
        driver.says(H200)
        assert gpu.read(loaded=True).throttled == ()
        driver.says(H200, "reasons 0x8")
        gpu.glance("a")
        assert gpu.read(loaded=True).throttled == ("the hardware slowed down",)


def test_a_slow_down_in_a_turn_is_seen_after_the_round(driver: Driver) -> None:
    with open_gpu("cuda:0") as gpu:
        driver.says(H200, "reasons 0x48")
        gpu.glance("b")
        driver.says(H200)
        assert gpu.read(loaded=True).throttled == ("it was too hot (hardware)",)
        assert gpu.read(loaded=True).throttled == ()


@pytest.mark.parametrize(("seen", "told"), [(1, ()), (4, ("it was too hot (hardware)",))])
def test_a_moment_of_a_long_soak_is_no_slow_down(
    driver: Driver, seen: int, told: tuple[str, ...]
) -> None:
    with open_gpu("cuda:0") as gpu:
        for _ in range(200):
            gpu.glance("a", steady=True)
        driver.says(H200, "reasons 0x48")
        for _ in range(seen):
            gpu.glance("a", steady=True)
        driver.says(H200)
        assert gpu.read(loaded=True).throttled == told


def in_turns(driver: Driver, a: int, b: int, *lines: str) -> GpuReading:
    """Return the reading of a round in which the sides have these clocks."""
    driver.says(H200, *lines)
    with open_gpu("cuda:0") as gpu:
        for side, clock in {"a": a, "b": b}.items():
            driver.says(H200, f"clock.1 {clock}", *lines)
            gpu.glance(side)
        driver.says(H200, "clock.1 345", *lines)
        return gpu.read(loaded=True)


def test_clocks_are_those_of_each_sides_turns(driver: Driver) -> None:
    reading = in_turns(driver, 1980, 1965)
    assert reading.clocks == {"a": 1980, "b": 1965}
    later = in_turns(driver, 1410, 1410)
    assert gpu_problems([reading, later], OWN) == []


def test_sides_with_unlike_clocks_are_a_problem_unless_the_power_limit_made_them(
    driver: Driver,
) -> None:
    problem = "its clock was 1980 MHz in A's turns and 1410 MHz in B's"
    assert gpu_problems([in_turns(driver, 1980, 1410)], OWN) == [problem]
    capped = in_turns(driver, 1980, 1410, "field.74 0+600000000")
    assert gpu_problems([capped], OWN) == []
    assert gpu_limits([capped]).startswith("it was at its power limit for ")
    assert gpu_limits([capped]).endswith(", at 1980 MHz in A's turns and 1410 MHz in B's")


def test_a_clock_that_the_power_limit_moved_is_no_problem() -> None:
    capped = replace(SLOWER, slowed={"it was at its power limit": 0.37})
    assert gpu_problems([IDLE, BUSY, capped], OWN) == []
    assert gpu_limits([BUSY, capped]) == "it was at its power limit for 37 % of the time"
    busy = replace(BUSY, capped=("it was at its power limit",))
    assert gpu_problems([IDLE, busy, SLOWER], OWN) == ["its clock changed from 1980 to 1410 MHz"]
    between = replace(BUSY, sm_clock=1500)
    problem = "its clock changed from 1980 to 1500 MHz"
    assert gpu_problems([IDLE, BUSY, between, capped], OWN) == [problem]


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
UNLIMITED = replace(BUSY, power_limit=900.0)
LIMITED = replace(BUSY, power_limit=500.0, capped=("it was at its power limit",))
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
    two = replace(BUSY, processes=(9001, 9002))
    problem = "other processes were on it: 9001, 9002"
    assert gpu_problems([IDLE, two], {11}, agents=1) == [problem]


def test_a_power_limit_that_moves_and_is_not_reached_is_no_problem() -> None:
    assert gpu_problems([IDLE, BUSY, UNLIMITED], OWN) == []


def test_an_idle_clock_is_not_compared_with_that_of_work() -> None:
    assert gpu_problems([IDLE, BUSY], OWN) == []


def test_facts_are_of_the_gpu_at_work() -> None:
    assert gpu_facts([IDLE, BUSY]) == "GPU 1980 MHz, 412 W, 47 °C"
    assert gpu_limits([IDLE, BUSY]) == ""


def test_facts_have_the_range_of_each_value_and_the_power_limit_is_told() -> None:
    capped = ("it was at its power limit",)
    later = replace(BUSY, sm_clock=1965, temperature=51, capped=capped)
    assert gpu_facts([IDLE, BUSY, later]) == "GPU 1965 to 1980 MHz, 412 W, 47 to 51 °C"
    assert gpu_limits([IDLE, BUSY, later]) == "it was at its power limit"


def test_there_are_no_facts_of_a_driver_that_tells_nothing() -> None:
    silent = replace(BUSY, sm_clock=None, power=None, temperature=None)
    assert gpu_facts([IDLE, silent]) == ""


def test_a_machine_without_a_driver_is_unavailable(driver: Driver) -> None:
    driver.says("init !9", H200)
    message = "device cuda:0: the NVIDIA driver can't be asked for its state: Driver Not Loaded"
    with pytest.raises(Unavailable, match=message), open_gpu("cuda:0"):
        pass


def test_an_older_package_of_nvml_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pynvml, "nvmlGpmQueryDeviceSupport")
    message = "device cuda:0: .* nvidia-ml-py from version 12 on; pip install 'nvidia-ml-py>="
    with pytest.raises(Unavailable, match=message), open_gpu("cuda:0"):
        pass


def test_a_gpu_that_is_not_there_is_unavailable(driver: Driver) -> None:
    with pytest.raises(Unavailable, match="device cuda:7: there is no cuda:7"), open_gpu("cuda:7"):
        pass
    assert driver.users == 0
