"""What an agent costs with each framework, beside what a person would write (ci/bare.py); ci/bench
prints it.

A framework is measured where the tests run it: in its own stack if that has been made (bash
ci/stacks NAME), or here.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bare
import numpy as np

from pytest_mlms.agent.process import Agent, start_agent
from pytest_mlms.artifacts.fetch import default_cache, fetch_files
from pytest_mlms.manifest import load
from pytest_mlms.records import Launch

__all__ = ["names", "rows_of"]

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.support.frameworks import launch_of  # noqa: E402

DIGITS = ROOT / "manifests" / "digits"
BATCH = 256  # so that a call takes longer than 0.2 ms
PAIRS, BLOCKS, STARTS = 5, 12, 15
IMPORTED = {
    "caffe2": "torch, caffe2.python.workspace",
    "opencv": "cv2",
    "pytorch": "torch",
    "tflite": "ai_edge_litert.interpreter",
}


def names() -> list[str]:
    """Return the frameworks that there is a bare loop for."""
    return [
        name
        for name, made in vars(bare).items()
        if inspect.isfunction(made) and "graph" in made.__code__.co_varnames
    ]


def rows_of(name: str) -> Iterator[tuple[str, float, float]]:
    """Yield what was found and its bound.

    Nothing, but a line that says why, where it can't be measured here.
    """
    manifest = load(DIGITS / "digits.yaml")
    model = next(model for model in manifest.manifest.models if model.name == name)
    found = fetch_files(manifest, model, default_cache(), lambda *_: None).model
    files = {role: str(path) for role, path in found.items()}
    launch = launch_of(name, threads=bare.THREADS)
    if launch is None:
        print(f"{name}: left out; its stack isn't made: bash ci/stacks {name}", flush=True)
        return
    ratios = [_loop(name, launch, files, dict(model.options)) for _ in range(PAIRS)]
    yield f"{name}: agent / bare loop, p50, batch {BATCH}", statistics.median(ratios), 1.02
    yield f"{name}: agent's start less its import, ms", 1000 * _start(name, launch), 150


@contextlib.contextmanager
def _agent(name: str, launch: Launch) -> Iterator[Agent]:
    with tempfile.TemporaryDirectory() as folder:
        agent = start_agent(launch, ROOT / "predictors" / f"{name}.py", Path(folder, "log"), 300)
        try:
            agent.request("hello")
            yield agent
        finally:
            agent.close()


class _Bare:
    """A process that times what a person would write, a block when it is asked."""

    def __init__(self, name: str, launch: Launch, files: list[str]) -> None:
        command = [*launch.command, str(ROOT / "ci" / "bare.py"), name, str(BATCH), *files]
        pipes: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.DEVNULL,
        }
        self._process = subprocess.Popen(
            command, env=dict(launch.env), text=True, bufsize=1, **pipes
        )
        assert self._process.stdout
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit(f"ci/bare.py does not run with {name}; try: {' '.join(command)}")

    def p50(self, count: int) -> float:
        """Return the median of ``count`` calls, in seconds."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{count}\n")
        return float(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def _loop(name: str, launch: Launch, files: dict[str, str], options: dict[str, Any]) -> float:
    """Return p50 through an agent over p50 of a bare loop.

    Two processes that take turns, block by block.
    """
    images = np.load(DIGITS / "digits_test.npz")["image"][:BATCH, None].astype(np.float32) / 16
    with (
        _agent(name, launch) as agent,
        contextlib.closing(_Bare(name, launch, list(files.values()))) as other,
    ):
        agent.request(
            "load", {"files": files, "device": "cpu", "threads": bare.THREADS, "options": options}
        )
        count = max(5, int(0.1 / other.p50(5)))

        def through_agent() -> float:
            stop = {"seconds": 0, "least": count, "longest": 60}
            fields = {"scenario": "single_stream", "batches": 1, "stop": stop}
            times = agent.request("run", fields, [("image", images)], 60).arrays
            return float(np.median(times["end"] - times["start"]))

        sides = [through_agent, lambda: other.p50(count)]
        through_agent()
        ratios = []
        for _ in range(BLOCKS):
            p50 = {side: sides[side]() for side in random.sample([0, 1], 2)}
            ratios.append(p50[0] / p50[1])
    return statistics.median(ratios)


def _start(name: str, launch: Launch) -> float:
    """Return what an agent takes to say hello, less what an interpreter takes that only imports the
    framework.
    """
    command = [*launch.command, "-c", f"import numpy, {IMPORTED.get(name, name)}, os; os._exit(0)"]
    differences = []
    for _ in range(STARTS):
        taken = {}
        for side in random.sample(["agent", "import"], 2):
            began = time.perf_counter()
            if side == "import":
                subprocess.run(command, env=dict(launch.env), check=True, stderr=subprocess.DEVNULL)
                taken[side] = time.perf_counter() - began
            else:
                with _agent(name, launch):
                    taken[side] = time.perf_counter() - began
        differences.append(taken["agent"] - taken["import"])
    return statistics.median(differences)


if __name__ == "__main__":
    sys.exit("run it by: ci/bench frameworks, or ci/bench NAME")
