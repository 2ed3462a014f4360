"""Loads of the agent beside those of LoadGen's Python binding, on the same predictor.

Both send LoadGen's own Poisson arrivals, of the same seed. LoadGen's queries go to a thread that
makes the calls, as in the reference implementations of MLPerf Inference.

Other programs on the machine make both late, so they take turns, and each number is a median.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from bench_loop import GRAPH, PREDICTOR, read_image
from bench_row import ROOT, Row, in_random_order

SERVER = ROOT / "tests" / "support" / "predictors" / "server.py"
SEED = 20
FIRST_RATE = 4000.0  # queries a second
STEP = 2**0.25  # between two rates, once a probe was the other way than the one before
TURNS_OF_RATES = 24  # of both clients, each with one probe
COUNTED_TURNS = 12  # the last ones
PROBE_SECONDS = 0.3
ISSUE_DELAY = 1e-3  # seconds
DRAINED = 0.1  # of the duration, after which all queries are done
PROCESSES = 3  # that find both highest rates
LONGEST_DRAIN = 30.0  # seconds after which a load ends anyway
CALL_SECONDS = 0.01  # of the calls whose latencies are compared
IMAGES = 512  # of a call of the network, which then takes some 5 ms
COMPARED_RATE = 50.0  # queries a second
COMPARED_SECONDS = 5.0
TURNS = 7
PERCENTILES = (50, 90, 99)
SECOND = 1e9  # nanoseconds


class Load(NamedTuple):
    """Nanoseconds of each query from the start, in the order of the schedule."""

    scheduled: np.ndarray
    issued: np.ndarray
    done: np.ndarray

    def latency(self, percent: float) -> float:
        """Return a percentile of the latencies."""
        return float(np.percentile(self.done - self.scheduled, percent))

    def keeps_up(self) -> bool:
        """Return whether the client issued in time, and the queue did not grow."""
        delay = np.percentile(self.issued - self.scheduled, 99) / SECOND
        rest = (self.done.max() - self.scheduled[-1]) / SECOND
        return bool(delay < ISSUE_DELAY and rest < DRAINED * PROBE_SECONDS)


Client = Callable[[float, float], Load]
"""Runs a load of a rate for some seconds."""


class Staircase:
    """The rate that half of the probes keep up with: up after one that does, else down.

    The rates end up around that one, and their median is its estimate (Levitt 1971, Journal of the
    Acoustical Society of America 49:467). A single probe that another program disturbed, or one
    that was lucky, moves it by a step at most.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._rate = FIRST_RATE
        self._factor = 2.0
        self._kept: bool | None = None
        self._rates: list[float] = []

    def probe(self) -> float:
        """Run one probe; return its rate."""
        rate = self._rate
        self._rates.append(rate)
        kept = self._client(rate, PROBE_SECONDS).keeps_up()
        if self._kept not in (None, kept):
            self._factor = STEP
        self._kept = kept
        self._rate = rate * self._factor if kept else rate / self._factor
        return rate

    def estimate(self) -> float:
        """Return the median of the last rates."""
        return statistics.median(self._rates[-COUNTED_TURNS:])


def measure_scenarios() -> Iterator[Row]:
    """Measure the highest rate of each client, and the latencies that both find."""
    print(f"    load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
    yield from measure_rates()
    yield from compare_latencies("10 ms asleep", sleeping_model)
    yield from compare_latencies("ONNX Runtime", network_model)
    print(f"    load average {os.getloadavg()[0]:.1f}", file=sys.stderr)


def measure_rates() -> Iterator[Row]:
    """Measure the highest rate of each client."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        rates = [pool.apply(rate_ratio) for _ in range(PROCESSES)]
    name = "highest rate with 99 % issued in 1 ms: LoadGen's binding / agent"
    yield Row(name, statistics.median(rates), 1.0)


def compare_latencies(name: str, model: Callable[[], dict[str, Client]]) -> Iterator[Row]:
    """Compare the percentiles that both clients find with a model."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        changes = pool.apply(latency_changes, (model,))
    for percent, change in zip(PERCENTILES, changes, strict=True):
        yield Row(f"latency by the agent and by LoadGen, {name}, p{percent}", change, 0.05)


def single_image() -> dict[str, Client]:
    """Return both clients of the network of digits with one image, which takes 20 us."""
    worker = loaded_worker(PREDICTOR, {"graph": str(GRAPH)}, {})
    return clients_of(worker, {"image": read_image()})


def network_model() -> dict[str, Client]:
    """Return both clients of the network of digits with many images in a call."""
    worker = loaded_worker(PREDICTOR, {"graph": str(GRAPH)}, {})
    return clients_of(worker, {"image": np.repeat(read_image(), IMAGES, axis=0)})


def sleeping_model() -> dict[str, Client]:
    """Return both clients of a model whose calls sleep."""
    worker = loaded_worker(SERVER, {}, {"seconds": CALL_SECONDS})
    return clients_of(worker, {"x": np.zeros((1, 2), np.float32)})


def rate_ratio() -> float:
    """Return LoadGen's highest rate over that of the agent, in this process."""
    clients = single_image()
    stairs = {}
    for name, client in clients.items():
        client(FIRST_RATE, PROBE_SECONDS)
        stairs[name] = Staircase(client)
    sides = {name: stair.probe for name, stair in stairs.items()}
    for _ in range(TURNS_OF_RATES):
        in_random_order(sides)
    found = {name: stair.estimate() for name, stair in stairs.items()}
    print(f"    {found} /s", file=sys.stderr)
    return found["LoadGen"] / found["agent"]


def latency_changes(model: Callable[[], dict[str, Client]]) -> list[float]:
    """Return the relative difference of each percentile, the median over turns."""
    clients = model()
    ratios: list[list[float]] = [[] for _ in PERCENTILES]
    for _ in range(TURNS):
        loads = {}
        for name in random.sample(list(clients), len(clients)):
            loads[name] = clients[name](COMPARED_RATE, COMPARED_SECONDS)
        for percent, found in zip(PERCENTILES, ratios, strict=True):
            found.append(loads["agent"].latency(percent) / loads["LoadGen"].latency(percent))
    return [abs(statistics.median(found) - 1) for found in ratios]


def loaded_worker(predictor: Any, files: dict[str, str], options: dict[str, Any]) -> Any:
    """Return a worker in this process with a model loaded."""
    from mlms_predictors._run.worker import Worker

    worker = Worker(str(predictor))
    worker.hello({}, [])
    load = {"files": files, "device": "cpu", "threads": 1, "options": options}
    worker.load(load, [])
    return worker


def clients_of(worker: Any, inputs: dict[str, np.ndarray]) -> dict[str, Client]:
    """Return both clients of one worker by name."""
    return {
        "agent": lambda rate, seconds: run_agent(worker, inputs, rate, seconds),
        "LoadGen": lambda rate, seconds: run_loadgen(worker, inputs, rate, seconds),
    }


def arrivals(rate: float, seconds: float) -> np.ndarray:
    """Return LoadGen's schedule of a rate."""
    from pytest_mlms.measure.load.arrivals import poisson_arrivals

    return poisson_arrivals(rate, SEED, int(seconds * SECOND), 1)


def run_agent(worker: Any, inputs: dict[str, np.ndarray], rate: float, seconds: float) -> Load:
    """Run a load of the agent."""
    from mlms_predictors._run.load_request import RECORDS

    from pytest_mlms.measure.agent.load import LoadPlan, request_fields, schedule_arrays

    scheduled = arrivals(rate, seconds)
    plan = LoadPlan(np.zeros(len(scheduled), np.int32), seconds + LONGEST_DRAIN, scheduled)
    arrays = [*schedule_arrays(plan), *inputs.items()]
    header = {**request_fields(plan, 1), "type": "load_run", "number": 1}
    records = dict(worker.load_run(header, arrays).arrays)[RECORDS]
    _, scheduled, issued, _, done, _ = records.T
    return Load(scheduled, issued, done)


def run_loadgen(worker: Any, inputs: dict[str, np.ndarray], rate: float, seconds: float) -> Load:
    """Run LoadGen's Server scenario on the worker's model."""
    import mlperf_loadgen

    scheduled = arrivals(rate, seconds)
    client = LoadGenClient(worker._predictor.bind(worker._loaded, inputs), len(scheduled))
    settings = mlperf_loadgen.TestSettings()
    settings.scenario = mlperf_loadgen.TestScenario.Server
    settings.mode = mlperf_loadgen.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.server_target_latency_ns = int(SECOND)
    settings.min_duration_ms = round(1000 * seconds)
    settings.max_duration_ms = 0
    settings.min_query_count = 1
    settings.max_query_count = len(scheduled)
    settings.schedule_rng_seed = SEED
    with tempfile.TemporaryDirectory() as folder:
        logs = mlperf_loadgen.LogSettings()
        logs.log_output.outdir = folder
        logs.enable_trace = False
        system = mlperf_loadgen.ConstructSUT(client.issue, lambda: None)
        library = mlperf_loadgen.ConstructQSL(1, 1, lambda _: None, lambda _: None)
        mlperf_loadgen.StartTestWithLogSettings(system, library, settings, logs)
        mlperf_loadgen.DestroyQSL(library)
        mlperf_loadgen.DestroySUT(system)
    issued, done = client.end()
    scheduled = scheduled[: len(issued)]
    start = (issued - scheduled).min()
    return Load(scheduled, issued - start, done - start)


class LoadGenClient:
    """A system under test of LoadGen: a queue, and a thread that makes the calls."""

    def __init__(self, call: Callable[[], Any], count: int) -> None:
        self._call = call
        self._issued = np.zeros(count, np.int64)
        self._done = np.zeros(count, np.int64)
        self._count = 0
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def issue(self, samples: list[Any]) -> None:
        """Take the samples of a query from LoadGen."""
        self._issued[self._count] = time.perf_counter_ns()
        self._count += 1
        for sample in samples:
            self._queue.put(sample.id)

    def end(self) -> tuple[np.ndarray, np.ndarray]:
        """End the thread; return when queries were issued and done."""
        self._queue.put(None)
        self._thread.join()
        return self._issued[: self._count], self._done[: self._count]

    def _serve(self) -> None:
        import mlperf_loadgen

        count = 0
        while (identity := self._queue.get()) is not None:
            self._call()
            response = mlperf_loadgen.QuerySampleResponse(identity, 0, 0)
            mlperf_loadgen.QuerySamplesComplete([response])
            self._done[count] = time.perf_counter_ns()
            count += 1
