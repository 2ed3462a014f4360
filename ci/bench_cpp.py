"""The example agent in C++, beside the loop that a person would write, and beside our worker."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench_loop import PREDICTOR, p50_of, run_fields
from bench_row import DIGITS, ROOT, Row, in_random_order

from pytest_mlms.core.records import Stack
from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.process import start_agent
from pytest_mlms.provide.artifacts.fetch import default_cache, fetch_files
from pytest_mlms.provide.stacks.declared import HERE
from pytest_mlms.provide.stacks.launch import prepare

SOURCES = ROOT / "docs" / "agents"
PAIRS = 15  # of processes
BLOCKS = 10  # of each pair
BOUND = 1.02
OF_PYTHON = 1.05
"""The agent in C++ may not be slower than Python's by more."""


class Network(NamedTuple):
    """A network with one input, its shape, and how many calls a block has."""

    name: str
    graph: Path
    shape: tuple[int, ...]
    calls: int


def measure_cpp() -> Iterator[Row]:
    """Measure pairs of processes, which take turns block by block, on digits and a larger model."""
    import onnxruntime

    library = next((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    with tempfile.TemporaryDirectory() as folder:
        agent, bare = Path(folder, "agent"), Path(folder, "bare_loop")
        _build(SOURCES / "agent.cpp", agent)
        _build(ROOT / "ci" / "bare_loop.cpp", bare)
        own = prepare(
            Stack("cpp", "onnxruntime", agent=(str(agent), str(library))), ROOT, threads=1
        )
        python = prepare(HERE, ROOT, threads=1)
        for network in (_digits(), _larger()):
            ratios = [_pair(network, own, _bare(bare, library, network)) for _ in range(PAIRS)]
            yield Row(f"C++ agent / bare C++ loop, p50, {network.name}", _middle(ratios), BOUND)
            ratios = [_pair(network, own, _agent(python, network)) for _ in range(PAIRS)]
            yield Row(f"C++ agent / agent, p50, {network.name}", _middle(ratios), OF_PYTHON)


def _middle(ratios: list[float]) -> float:
    low, high = np.quantile(ratios, (0.25, 0.75))
    print(f"  quartiles {low:.3f} to {high:.3f}", file=sys.stderr)
    return statistics.median(ratios)


def _build(source: Path, program: Path) -> None:
    command = ["g++", "-std=c++17", "-O2", f"-I{SOURCES}", str(source), "-o", str(program), "-ldl"]
    subprocess.run(command, check=True)


def _digits() -> Network:
    return Network("digits", DIGITS / "digits_cnn.onnx", (1, 1, 8, 8), 2000)


def _larger() -> Network:
    manifest = load(ROOT / "manifests" / "image-classification" / "page_orientation.yaml")
    files = fetch_files(manifest, manifest.manifest.models[0], default_cache(), lambda *_: None)
    return Network("page orientation", files.model["graph"], (1, 3, 224, 224), 60)


@contextmanager
def _agent(launch: Any, network: Network) -> Iterator[Callable[[], float]]:
    """Give a function that runs a block in an agent, and returns its p50 in seconds."""
    count = int(np.prod(network.shape))
    values = (np.arange(count) % 17 / 16).astype(np.float32).reshape(network.shape)
    with tempfile.TemporaryDirectory() as folder:
        agent = start_agent(launch, PREDICTOR, Path(folder, "log"), 60)
        try:
            agent.request("hello")
            files = {"graph": str(network.graph)}
            loading = {"files": files, "device": "cpu", "threads": 1, "options": {}}
            (name, _, _), *_ = agent.request("load", loading).facts["inputs"]
            fields = run_fields()
            fields["stop"]["least"] = network.calls

            def run() -> float:
                return p50_of(agent.request("run", fields, [(name, values)], 60).arrays)

            run()
            yield run
        finally:
            agent.close()


@contextmanager
def _bare(program: Path, library: Path, network: Network) -> Iterator[Callable[[], float]]:
    """Give the same of the bare loop."""
    arguments = [library, network.graph, network.calls, *network.shape]
    process = subprocess.Popen(
        [str(program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    assert stdout.readline() == "ready\n"

    def run() -> float:
        stdin.write("go\n")
        return float(stdout.readline())

    try:
        yield run
    finally:
        process.communicate()


def _pair(network: Network, own: Any, other: Any) -> float:
    """Return the median ratio of the C++ agent to the other, in a pair of processes."""
    with ExitStack() as opened:
        sides = {
            "own": opened.enter_context(_agent(own, network)),
            "other": opened.enter_context(other),
        }
        found = [in_random_order(sides) for _ in range(BLOCKS)]
    return statistics.median(each["own"] / each["other"] for each in found)
