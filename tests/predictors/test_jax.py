"""JAX beside the contract: what XLA made of the layers, its threads, what is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import Framework, python_of
from tests.support.project import DIGITS

GRAPH = DIGITS / "digits_cnn.jax"


@pytest.fixture
def jax(tmp_path: Path) -> Iterator[Framework]:
    """A fresh agent each: XLA takes its threads once a process."""
    framework = Framework(python_of("jax", "jax"), "jax", tmp_path / "log")
    yield framework
    framework.agent.close()


def test_layers_are_the_operations_that_xla_compiled(jax: Framework) -> None:
    facts = jax.load(GRAPH)
    assert facts["inputs"] == [["image", "float32", [None, 1, 8, 8]]]
    assert facts["outputs"] == [["logits", "float32", [None, 10]]]
    jax.check()
    layers = jax.layers()
    assert any(layer[1] in ("convolution", "fusion") for layer in layers)
    assert all(layer[4] is None or layer[4] > 0 for layer in layers)
    assert any(layer[5] == [8, 10] for layer in layers)


@pytest.mark.parametrize("threads", [1, 2])
def test_xla_runs_with_the_threads_asked_for(jax: Framework, threads: int) -> None:
    assert jax.load(GRAPH, threads=threads)["threads"] == threads
    jax.predict()
    tasks = Path("/proc", str(jax.agent.process.pid), "task")
    if not tasks.exists():
        pytest.skip("this system has no /proc")

    def named() -> int:  # a thread gives itself its name, as soon as it runs
        return [(tasks / task / "comm").read_text().strip() for task in os.listdir(tasks)].count(
            "tf_XLAEigen"
        )

    deadline = time.monotonic() + 600
    while named() < threads and time.monotonic() < deadline:
        time.sleep(0.05)
    assert named() == threads
    with pytest.raises(Refused, match=f"XLA runs with {threads} threads in this process"):
        jax.load(GRAPH, threads=threads + 1)


def test_what_it_can_not_do_is_refused(jax: Framework, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no option 'mode'; this predictor knows precision"):
        jax.load(GRAPH, mode="fast")
    with pytest.raises(Refused, match="precision is 'low'; write one of default"):
        jax.load(GRAPH, precision="low")
    with pytest.raises(Refused, match=r"no file of jax\.export"):
        jax.load(DIGITS / "digits_cnn.onnx")
    half = tmp_path / "half.jax"
    half.write_bytes(GRAPH.read_bytes()[:50000])
    with pytest.raises(Refused):
        jax.load(half)
    if "cuda:0" not in jax.hello["devices"]:
        with pytest.raises(Refused):
            jax.load(GRAPH, device="cuda:0")
