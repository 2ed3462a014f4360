"""Loads served by a worker in this process, with ONNX Runtime."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from mlms_predictors._run.arrivals import OpenLoop, Taken
from mlms_predictors._run.energy import EnergyMeter
from mlms_predictors._run.load import READING, RECORD, TOKEN, Recorder
from mlms_predictors._run.load_request import READINGS, RECORDS
from mlms_predictors._run.process import BusyThreads, PeakMemory
from mlms_predictors._run.worker import Worker

from pytest_mlms.measure.agent.load import Batcher, LoadPlan, request_fields, schedule_arrays
from tests.support.load_agents import every
from tests.support.project import DIGITS, ROOT

SAMPLES = 6
IMAGES = np.load(DIGITS / "digits_test.npz")["image"][:SAMPLES, None].astype(np.float32) / 16
INSTANCE_THREADS = "mlms-instance"


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker with the digits network loaded."""
    worker = Worker(str(ROOT / "predictors" / "onnxruntime.py"))
    worker.hello({}, [])
    files = {"graph": str(DIGITS / "digits_cnn.onnx")}
    worker.load({"files": files, "device": "cpu", "threads": 1}, [])
    yield worker
    worker.close()


def serve(worker: Worker, plan: LoadPlan) -> dict[str, Any]:
    """Run a load on single images; return the arrays of the reply, and its fields as "fields"."""
    arrays = schedule_arrays(plan)
    for number in range(SAMPLES):
        arrays.append(("image", IMAGES[number : number + 1]))
    header = {**request_fields(plan, SAMPLES), "type": "load_run", "number": 1}
    reply = worker.load_run(header, arrays)
    return {**dict(reply.arrays), "fields": reply.fields}


def open_plan(**fields: Any) -> LoadPlan:
    count = 10 * SAMPLES
    return LoadPlan(np.arange(count) % SAMPLES, 60, every(0.5, count), **fields)


def instance_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(INSTANCE_THREADS)]


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("batcher", [None, Batcher(4, 1_000_000)])
def test_outputs_under_load_are_those_of_the_same_inputs_alone(
    worker: Worker, instances: int, batcher: Batcher | None
) -> None:
    found = serve(worker, open_plan(instances=instances, batcher=batcher))
    calls = worker.served({"place": 0}, []).fields["samples"]
    assert len(calls) > 1
    for place, samples in enumerate(calls):
        logits = dict(worker.served({"place": place}, []).arrays)["logits"]
        alone = dict(worker.predict({}, [("image", IMAGES[samples])]).arrays)
        np.testing.assert_allclose(logits, alone["logits"], rtol=1e-4, atol=1e-5)
    assert sorted(found[RECORDS][:, 0].tolist()) == list(range(10 * SAMPLES))


def test_a_load_without_samples_is_refused(worker: Worker) -> None:
    plan = open_plan()
    header = {**request_fields(plan, 0), "type": "load_run", "number": 1}
    with pytest.raises(ValueError, match="there are no samples"):
        worker.load_run(header, schedule_arrays(plan))


def test_copies_are_freed_with_the_model(worker: Worker) -> None:
    serve(worker, open_plan(instances=3))
    assert len(instance_threads()) == 2
    worker.close()
    assert instance_threads() == []


def test_a_load_leaves_the_interpreter_as_it_was(worker: Worker) -> None:
    interval = sys.getswitchinterval()
    serve(worker, open_plan())
    assert sys.getswitchinterval() == interval


def test_parts_are_sent_while_the_load_runs(worker: Worker) -> None:
    parts: list[Any] = []
    worker.send = lambda fields, arrays: parts.append((fields, dict(arrays)))
    plan = LoadPlan(np.zeros(40, int), 60, every(30, 40))
    found = serve(worker, plan)
    assert len(parts) >= 2, "a load of 1.2 s has a part each half second"
    for fields, _ in parts:
        assert fields == {"type": "load_run", "number": 1, "part": True}
    records = [arrays[RECORDS] for _, arrays in parts] + [found[RECORDS]]
    assert np.concatenate(records)[:, 0].tolist() == list(range(40))
    readings = np.concatenate([arrays[READINGS] for _, arrays in parts])
    assert (np.diff(readings, axis=0) >= 0).all()


def test_the_lag_of_a_query_is_from_the_moment_at_which_it_could_start() -> None:
    recorder = Recorder()
    assert recorder.take_block()[1].shape == (0, len(READING)), "no reading before the start"
    arrivals = OpenLoop(np.array([100, 400, 900], np.int64), 3, 0, 10**9)
    arrivals.begin(1000)
    recorder.add(arrivals, Taken(0, 3, 1500), 3, (1950, 2500))
    records = recorder.take_block()[0]
    assert records.shape[1] == len(RECORD)
    lags = records[:, 2] - records[:, 1]
    assert lags.tolist() == [450, 450, 50], (
        "from 1500, when the instance was free; the last is due at 1900"
    )
    assert records[:, 3].tolist() == [950] * 3
    assert records[:, 4].tolist() == [1500] * 3
    assert recorder.take_block()[0].shape == (0, len(RECORD)), "a block is taken once"


def test_tokens_are_of_their_query_and_from_the_start_of_the_load() -> None:
    recorder = Recorder()
    recorder.begin(2_000_000_000)
    recorder.add_tokens(3, [2.5, 2.75])
    recorder.add_tokens(1, [3.0])
    tokens = recorder.take_block()[2]
    assert tokens.tolist() == [[3, 500_000_000], [3, 750_000_000], [1, 1_000_000_000]]
    assert recorder.take_block()[2].shape == (0, len(TOKEN)), "a block is taken once"


def test_reading_memory_is_no_part_of_the_energy_and_threads_of_a_load(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def note(kind: type, method: str) -> None:
        original = getattr(kind, method)

        def noted(self: Any) -> Any:
            read.append(method)
            return original(self)

        monkeypatch.setattr(kind, method, noted)

    note(EnergyMeter, "joules")
    note(BusyThreads, "count")
    note(PeakMemory, "read")
    serve(worker, open_plan())
    assert read == ["joules", "count", "read"]
