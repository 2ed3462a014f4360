"""The agent's timed loop, beside the loop that a person would write."""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from bench_row import DIGITS, ROOT, Row, in_random_order

GRAPH = DIGITS / "digits_cnn.onnx"
PREDICTOR = ROOT / "predictors" / "onnxruntime.py"
CALLS = 2000
PROCESSES = 21  # that run both loops
ROUNDS = 8  # of each process
PAIRS = 15  # of processes
BLOCKS = 10  # of each pair
BOUND = 1.01


def read_image() -> Any:
    """Return one image as the network takes it."""
    images = np.load(DIGITS / "digits_test.npz")["image"]
    return images[:1, None].astype(np.float32) / 16


def time_bare_loop(session: Any, feed: dict[str, np.ndarray], calls: int) -> float:
    """Return the p50 of session.run(None, feed) between two clock readings, in seconds."""
    clock = time.perf_counter
    durations = []
    for _ in range(calls):
        before = clock()
        session.run(None, feed)
        durations.append(clock() - before)
    return statistics.median(durations)


def measure_loop() -> Iterator[Row]:
    """Measure the agent's own loop and a bare one, in one process, with one session.

    Processes differ in where their memory lies, so several are asked, one after another.
    """
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        ratios = [pool.apply(measure_process) for _ in range(PROCESSES)]
    name = f"agent's loop / bare loop, p50, batch 1, {PROCESSES} processes of both"
    yield Row(name, statistics.median(ratios), BOUND)


def measure_process() -> float:
    """Return the median ratio of the two loops in this process."""
    from mlms_predictors._run.worker import Worker

    worker = Worker(str(PREDICTOR))
    worker.hello({}, [])
    worker.load({"files": {"graph": str(GRAPH)}, "device": "cpu", "threads": None}, [])
    session = worker._loaded.model.session
    feed = {"image": read_image()}
    header = run_fields()

    def run_agent() -> float:
        reply = worker.run(header, list(feed.items()))
        return p50_of(dict(reply.arrays))

    def run_bare() -> float:
        return time_bare_loop(session, feed, CALLS)

    ratios = []
    for _ in range(ROUNDS):
        p50 = in_random_order({"agent": run_agent, "bare": run_bare})
        ratios.append(p50["agent"] / p50["bare"])
    return statistics.median(ratios)


def measure_agent() -> Iterator[Row]:
    """Measure a real agent and a bare loop in a process of its own, several pairs of processes.

    The two of a pair take turns, block by block.
    """
    ratios = [measure_pair() for _ in range(PAIRS)]
    name = f"agent / bare loop, p50, batch 1, {PAIRS} pairs of processes"
    yield Row(name, statistics.median(ratios), BOUND)


def measure_pair() -> float:
    """Return the median ratio of one pair of processes."""
    image = read_image()
    with started_agent() as agent, BareProcess() as bare:

        def run_agent() -> float:
            reply = agent.request("run", run_fields(), [("image", image)], 60)
            return p50_of(reply.arrays)

        run_agent()
        ratios = []
        for _ in range(BLOCKS):
            p50 = in_random_order({"agent": run_agent, "bare": bare.run})
            ratios.append(p50["agent"] / p50["bare"])
    return statistics.median(ratios)


def run_fields() -> dict[str, Any]:
    """Return the fields of a request for the calls of one block."""
    stop = {"seconds": 0, "least": CALLS, "longest": 60}
    return {"scenario": "single_stream", "batches": 1, "stop": stop}


def p50_of(times: dict[str, np.ndarray]) -> float:
    """Return the median latency of a run, in seconds."""
    return float(np.median(times["time:end"] - times["time:start"]))


@contextmanager
def started_agent() -> Iterator[Any]:
    """Give an agent of this interpreter that has the network loaded."""
    from pytest_mlms.measure.agent.process import start_agent
    from pytest_mlms.provide.stacks.declared import HERE
    from pytest_mlms.provide.stacks.launch import prepare

    with tempfile.TemporaryDirectory() as folder:
        agent = start_agent(prepare(HERE, ROOT), PREDICTOR, Path(folder, "log"), 60)
        try:
            agent.request("hello")
            files = {"graph": str(GRAPH)}
            agent.request("load", {"files": files, "device": "cpu", "threads": None})
            yield agent
        finally:
            agent.close()


class BareProcess:
    """A process that runs the bare loop once for each line of its input."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(GRAPH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._read()

    def run(self) -> float:
        """Return the p50 of one block, in seconds."""
        stdin: Any = self._process.stdin
        stdin.write("go\n")
        return float(self._read())

    def _read(self) -> str:
        stdout: Any = self._process.stdout
        line: str = stdout.readline()
        return line

    def __enter__(self) -> BareProcess:
        return self

    def __exit__(self, *raised: object) -> None:
        self._process.communicate()


def serve_bare_loop(graph: str) -> None:
    """Be the process of BareProcess."""
    import onnxruntime

    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    feed = {"image": read_image()}
    time_bare_loop(session, feed, CALLS)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(time_bare_loop(session, feed, CALLS), flush=True)


if __name__ == "__main__":
    serve_bare_loop(sys.argv[1])
