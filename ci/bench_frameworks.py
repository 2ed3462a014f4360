"""The cost of an agent with each framework, beside the plain loop of ci/bare.py; for ci/bench.

A framework is measured where the tests run it: in its own stack if that has been made (bash
ci/stacks NAME), or here.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import bare
import numpy as np
from bench_row import Row, in_random_order

from pytest_mlms.core.records import Launch
from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.process import Agent, start_agent
from pytest_mlms.provide.artifacts.fetch import default_cache, fetch_files

__all__ = ["names", "rows_of"]

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.support.frameworks import digits, launch_of  # noqa: E402

DIGITS = ROOT / "manifests" / "digits"
BATCH = 256  # so that a call takes longer than 0.2 ms
BLOCK_SECONDS = 0.1
PAIRS = 9
BLOCKS = 12
STARTS = 15
LARGEST_RATIO = 1.02
LARGEST_START = 150
"""Milliseconds."""
IMPORTED = {
    "caffe2": "torch, caffe2.python.workspace",
    "opencv": "cv2",
    "pytorch": "torch",
    "tflite": "ai_edge_litert.interpreter",
}
"""The import name of a framework, where it differs from the framework's name."""


class Subject(NamedTuple):
    """A framework, how to start it, and the digits network in its format."""

    name: str
    launch: Launch
    files: Mapping[str, str]
    options: Mapping[str, Any]


def names() -> list[str]:
    """Return the frameworks that there is a bare loop for."""
    return list(bare.LOOPS)


def rows_of(name: str) -> Iterator[Row]:
    """Yield the cost of the loop and of the start, with their bounds.

    A framework that can't be measured here has no rows; the reason is printed.
    """
    launch = launch_of(name, threads=bare.THREADS)
    if launch is None:
        print(f"{name}: left out; its stack isn't made: bash ci/stacks {name}", flush=True)
        return
    subject = _subject(name, launch)
    ratios = [_ratio(subject) for _ in range(PAIRS)]
    ratio = statistics.median(ratios)
    yield Row(f"{name}: agent / bare loop, p50, batch {BATCH}", ratio, LARGEST_RATIO)
    milliseconds = 1000 * _start_seconds(subject)
    yield Row(f"{name}: agent's start less its import, ms", milliseconds, LARGEST_START)


def _subject(name: str, launch: Launch) -> Subject:
    manifest = load(DIGITS / "digits.yaml")
    model = next(model for model in manifest.manifest.models if model.name == name)
    paths = fetch_files(manifest, model, default_cache(), lambda *_: None).model
    files = {role: str(path) for role, path in paths.items()}
    return Subject(name, launch, files, model.options)


@contextlib.contextmanager
def _agent(subject: Subject) -> Iterator[Agent]:
    predictor = ROOT / "predictors" / f"{subject.name}.py"
    with tempfile.TemporaryDirectory() as folder:
        agent = start_agent(subject.launch, predictor, Path(folder, "log"), 300)
        try:
            agent.request("hello")
            yield agent
        finally:
            agent.close()


class _BareLoop:
    """A process that times the plain loop, a block when it is asked."""

    def __init__(self, subject: Subject) -> None:
        program = [str(ROOT / "ci" / "bare.py"), subject.name, str(BATCH)]
        command = [*subject.launch.command, *program, *subject.files.values()]
        self._process = subprocess.Popen(
            command,
            env=dict(subject.launch.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        if self._read_line() != "ready\n":
            raise SystemExit(f"ci/bare.py does not run with {subject.name}; try: {command}")

    def p50(self, count: int) -> float:
        """Return the median of ``count`` calls, in seconds."""
        assert self._process.stdin
        self._process.stdin.write(f"{count}\n")
        return float(self._read_line())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def _read_line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


def _ratio(subject: Subject) -> float:
    """Return p50 through an agent over p50 of a bare loop.

    Two processes take turns, block by block, in random order.
    """
    arrays = [("image", digits(BATCH))]
    with contextlib.ExitStack() as stack:
        agent = stack.enter_context(_agent(subject))
        loop = stack.enter_context(contextlib.closing(_BareLoop(subject)))
        request = {
            "files": subject.files,
            "device": "cpu",
            "threads": bare.THREADS,
            "options": subject.options,
        }
        agent.request("load", request)
        count = max(5, int(BLOCK_SECONDS / loop.p50(5)))

        def through_agent() -> float:
            stop = {"seconds": 0, "least": count, "longest": 60}
            fields = {"scenario": "single_stream", "batches": 1, "stop": stop}
            times = agent.request("run", fields, arrays, 60).arrays
            return float(np.median(times["time:end"] - times["time:start"]))

        def through_loop() -> float:
            return loop.p50(count)

        through_agent()  # warms up
        sides = {"agent": through_agent, "loop": through_loop}
        ratios = []
        for _ in range(BLOCKS):
            p50 = in_random_order(sides)
            ratios.append(p50["agent"] / p50["loop"])
    return statistics.median(ratios)


def _start_seconds(subject: Subject) -> float:
    """Return the time of an agent's start up to its hello, less that of an import.

    The import is by an interpreter that does nothing else.
    """
    sides = {"agent": partial(_start_agent, subject), "import": partial(_only_import, subject)}
    differences = []
    for _ in range(STARTS):
        seconds = in_random_order(sides)
        differences.append(seconds["agent"] - seconds["import"])
    return statistics.median(differences)


def _start_agent(subject: Subject) -> float:
    """Return the seconds until a new agent has said hello."""
    began = time.perf_counter()
    with _agent(subject):
        return time.perf_counter() - began


def _only_import(subject: Subject) -> float:
    """Return the seconds of an interpreter that imports the framework and ends."""
    modules = IMPORTED.get(subject.name, subject.name)
    code = f"import numpy, {modules}, os; os._exit(0)"
    command = [*subject.launch.command, "-c", code]
    began = time.perf_counter()
    subprocess.run(command, env=dict(subject.launch.env), check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit("run it by: ci/bench frameworks, or ci/bench NAME")
