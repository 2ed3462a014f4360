"""Memory of this process on a GPU: the real pynvml above a stub of NVIDIA's driver."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Load, Loaded
from mlms_predictors._run import device_memory, gpus
from mlms_predictors._run.device_memory import DeviceMemory
from mlms_predictors._run.instances import Instances
from mlms_predictors._run.interface import functions_of
from mlms_predictors._run.worker import Worker

from pytest_mlms.measure.agent.load import LoadPlan, request_fields, schedule_arrays
from tests.predictors.run.test_interface import module_with
from tests.support.driver import H200, Driver
from tests.support.load_agents import LIBRARY, every, in_turn
from tests.support.project import PREDICTORS

MB = 10**6


@pytest.fixture(autouse=True)
def gpu(driver: Driver) -> Driver:
    device_memory._open.cache_clear()
    return driver


def memory_after(driver: Driver, *lines: str, before: str = "process 77 5000") -> DeviceMemory:
    """Return the memory of a process before whose model the driver said less."""
    driver.says(H200, before)
    memory = DeviceMemory("cuda:0")
    driver.says(H200, before, *lines)
    return memory


def counters(memory: DeviceMemory) -> list[tuple[str, int]]:
    found = memory.read()
    assert found is not None
    return list(found.counters.items())


def test_nvml_tells_what_this_process_holds_and_its_largest_reading_is_the_peak(
    driver: Driver,
) -> None:
    memory = memory_after(driver, "process self 3000")
    assert counters(memory) == [("NVML", 3000)]
    driver.says(H200, "process 77 5000", "process self 1000")
    assert (counters(memory), memory.now()) == ([("NVML", 3000)], 1000)


def test_an_older_driver_lists_processes_by_another_function(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_PROCESSES", ("nvmlNoSuchFunction", gpus._PROCESSES[1]))
    assert counters(memory_after(driver, "process self 3000")) == [("NVML", 3000)]
    monkeypatch.setattr(gpus, "_PROCESSES", ("nvmlNoSuchFunction",))
    found = DeviceMemory("cuda:0").read()
    assert found is not None
    assert found.missing == "this driver has no nvmlNoSuchFunction"


def test_no_package_of_the_stack_is_needed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert counters(memory_after(driver, "process self 3000")) == [("NVML", 3000)]


def test_the_frameworks_own_counter_comes_first(driver: Driver) -> None:
    memory = memory_after(driver, "process self 3000")
    memory.count = lambda: {"pool": 500}
    assert counters(memory) == [("pool", 500), ("NVML", 3000)]
    assert memory.peak() == 500


def test_in_a_container_this_process_is_the_one_that_came_with_the_model(driver: Driver) -> None:
    memory = memory_after(driver, "process 4242 3000")
    assert counters(memory) == [("NVML", 3000)]
    driver.says(H200, "process 77 5000", "process 4243 9000", "process 4242 3100")
    assert counters(memory) == [("NVML", 3100)]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["process 78 1", "process 79 1"], "NVML lists no process PID, and 2 that"),
        ([], "NVML lists no process PID, and 0 that are new"),
        (["process self ?"], "NVML doesn't tell the memory of single processes here"),
        (["processes !4"], "NVML: "),
    ],
)
def test_where_nvml_does_not_tell_the_reason_is_there_and_no_number(
    driver: Driver, lines: list[str], reason: str
) -> None:
    memory = memory_after(driver, "memory 9000 4000", *lines)
    found = memory.read()
    assert found is not None
    assert found.counters == {}
    assert found.missing.startswith(reason.replace("PID", str(os.getpid())))
    assert memory.now() == 4000, "that of the whole device"
    memory.count = lambda: {"pool": 500}
    assert counters(memory) == [("pool", 500)]


def test_the_memory_of_the_cpu_is_the_hosts() -> None:
    assert DeviceMemory("cpu").read() is None
    assert DeviceMemory("cpu").now() is None


def test_room_is_what_is_free_and_what_the_framework_holds_without_use(driver: Driver) -> None:
    memory = memory_after(driver, "memory 1000 400", "process self 300")
    assert memory.room() == 600
    memory.count = lambda: {"pool": 100}
    assert memory.room() == 800
    assert memory_after(driver, "processes !4").room() is None


def test_instances_that_a_gpu_has_no_room_for_are_refused_before_they_load(driver: Driver) -> None:
    driver.says(H200, f"memory {1000 * MB} {800 * MB}", f"process self {450 * MB}")
    worker = Worker(str(PREDICTORS / "server.py"))
    worker.hello({}, [])
    options = {"gpu": 400, "single": True}
    worker.load({"files": {}, "device": "cuda:0", "threads": None, "options": options}, [])
    plan = LoadPlan(in_turn(8), 60, every(1, 8), instances=4)
    arrays = schedule_arrays(plan) + [("x", each["x"]) for each in LIBRARY]
    message = (
        r"4 instances don't fit: one takes 419 MB of cuda:0's memory, and 230 MB are free for 3 "
        r"more; ask for at most 1"
    )
    with pytest.raises(ValueError, match=message):
        worker.load_run(request_fields(plan, len(LIBRARY)), arrays)
    worker.close()


def test_without_a_counter_the_first_copy_tells_its_size_less_the_context(driver: Driver) -> None:
    loads: list[Load] = []

    def load(request: Load) -> Loaded:
        loads.append(request)
        held = (400 + 100 * len(loads)) * MB
        driver.says(H200, f"memory {1000 * MB} {held}", f"process self {held}")
        return Loaded(None, "cuda:0", None, [], [])

    functions = functions_of(module_with(load=load))
    request = Load({}, "cuda:0", None, {})
    instances = Instances(functions, load(request), request, DeviceMemory("cuda:0"))
    message = (
        "8 instances don't fit: one takes 100 MB of cuda:0's memory, and 400 MB are free for 6 "
        "more; ask for at most 6"
    )
    with pytest.raises(ValueError, match=message):
        instances.load(8, available=1 << 60, first_bytes=0)
    instances.load(6, available=1 << 60, first_bytes=0)
    assert (instances.count, len(loads)) == (6, 6)
    instances.close()


def test_runs_and_turns_tell_the_peak_on_a_gpu_and_grow_by_it(driver: Driver) -> None:
    driver.says(H200, "process self 3000")
    worker = Worker(str(PREDICTORS / "server.py"))
    worker.hello({}, [])
    worker.load({"files": {}, "device": "cuda:0", "threads": None, "options": {"gpu": 400}}, [])
    batch: list[Any] = [("x", np.zeros((1, 2), np.float32))]
    stop = {"seconds": 0, "least": 1, "longest": 9}
    header = {"scenario": "single_stream", "batches": 1, "stop": stop}
    found = worker.run(header, batch).fields["device_memory"]
    assert found.counters == {"server.peak": 400 << 20, "NVML": 3000}
    worker.bind({"batches": 1}, batch)
    turn = {"first": 0, "skip": 0, "count": 1, "outputs": False}
    assert worker.turn(turn, []).fields["device_memory"] is None
    told = worker.turn({**turn, "memory": True}, []).fields["device_memory"]
    assert told.counters == found.counters
    assert worker.usage({"collect": False}, []).fields["device_memory"] == 3000
    worker.close()
