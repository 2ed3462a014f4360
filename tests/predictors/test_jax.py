"""JAX beside the contract: what XLA made of the layers, its threads, and what is refused."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.measure.agent.process import Refused
from tests.support.frameworks import INPUT, OUTPUT, Framework, python_of, signature
from tests.support.project import DIGITS, ROOT

GRAPH = DIGITS / "digits_cnn.jax"
XLA_THREAD = "tf_XLAEigen"
SECONDS = 600
"""How long a busy machine may take to start threads."""


@pytest.fixture
def jax(tmp_path: Path) -> Iterator[Framework]:
    """A fresh agent each: XLA takes its threads once a process."""
    framework = Framework(python_of("jax"), "jax", tmp_path / "log")
    yield framework
    framework.agent.close()


def test_layers_are_the_operations_that_xla_compiled(jax: Framework) -> None:
    facts = jax.load(GRAPH)
    assert signature(facts) == ([INPUT], [OUTPUT])
    jax.check()
    layers = jax.layers()
    assert any(layer.type in ("convolution", "fusion") for layer in layers)
    assert all(layer.bytes is None or layer.bytes > 0 for layer in layers)
    assert any(layer.shape == (8, 10) for layer in layers)


@pytest.mark.parametrize("threads", [1, 2])
def test_xla_runs_with_the_threads_asked_for(jax: Framework, threads: int) -> None:
    assert jax.load(GRAPH, threads=threads)["threads"] == threads
    jax.predict()
    tasks = Path("/proc", str(jax.agent.pid), "task")
    if not tasks.exists():
        pytest.skip("this system has no /proc")

    def named() -> int:
        """Count XLA's threads; a thread gives itself its name, as soon as it runs."""
        names = [path.read_text().strip() for path in tasks.glob("*/comm")]
        return names.count(XLA_THREAD)

    deadline = time.monotonic() + SECONDS
    while named() < threads and time.monotonic() < deadline:
        time.sleep(0.05)
    assert named() == threads


def test_another_number_of_threads_needs_another_process(jax: Framework) -> None:
    jax.load(GRAPH, threads=1)
    with pytest.raises(Refused, match="XLA runs with 1 threads in this process"):
        jax.load(GRAPH, threads=2)
    assert jax.load(GRAPH, threads=1)["threads"] == 1


def test_options_and_files_that_it_does_not_take_are_refused(
    jax: Framework, tmp_path: Path
) -> None:
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


def test_a_gpu_that_is_not_there_is_refused(jax: Framework) -> None:
    if "cuda:0" in jax.hello["devices"]:
        pytest.skip("here is a GPU")
    with pytest.raises(Refused):
        jax.load(GRAPH, device="cuda:0")


OPTIONS_OF_XLA = """
import sys
from jaxlib import xla_client
from mlms_predictors import Load, jax as predictor

try:
    predictor.load(Load({"graph": sys.argv[1]}, "cuda:0", None, {}))
except RuntimeError as error:  # there is no GPU
    print(error, file=sys.stderr)
options = xla_client.generate_pjrt_gpu_plugin_options()
print(options.get("preallocate"), options.get("memory_fraction"))
"""


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, "False None"),
        ({"XLA_CLIENT_MEM_FRACTION": "0.3"}, "None 0.3"),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, "True None"),
    ],
)
def test_memory_of_a_gpu_is_taken_as_needed_unless_the_user_says_otherwise(
    own: dict[str, str], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    command = [python_of("jax"), "-B", "-c", OPTIONS_OF_XLA, str(GRAPH)]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), **own}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == expected, done.stderr


STARTS = """
import sys
from jax._src import xla_bridge
from mlms_predictors import Load, jax as predictor

def start():
    print("started")
    raise RuntimeError

xla_bridge.register_backend_factory("another", start, fail_quietly=True)
for _ in range(2):
    print(predictor.load(Load({"graph": sys.argv[1]}, "cpu", None, {})).device)
"""


@pytest.mark.parametrize("platforms", ["", "another,cpu"])
def test_a_model_on_the_cpu_starts_no_other_device_unless_the_user_says_so(
    platforms: str, tmp_path: Path
) -> None:
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    command = [python_of("jax"), "-B", "-c", STARTS, str(GRAPH)]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "JAX_PLATFORMS": platforms}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.stdout.split()[:2] == (["started"] if platforms else ["cpu", "cpu"]), done.stderr


EXPORTS = """
import sys
import jax
from jax import export

def call_back(image):
    return {"logits": jax.ffi.ffi_call(sys.argv[2], image)(image)}

def compute(image):
    values = jax.numpy.linalg.eigh(image)[0] + jax.numpy.linalg.qr(image)[1][0]
    return {"logits": jax.lax.top_k(values, 2)[0]}

checks = [export.DisabledSafetyCheck.custom_call(sys.argv[2])]
shape = jax.ShapeDtypeStruct((2, 2), "float32")
for function in (call_back, compute):
    made = export.export(jax.jit(function), platforms=["cpu"], disabled_checks=checks)(image=shape)
    with open(f"{sys.argv[1]}/{function.__name__}.jax", "wb") as file:
        file.write(made.serialize())
"""


@pytest.mark.slow
def test_an_export_that_calls_back_is_refused_and_what_computes_is_not(
    jax: Framework, tmp_path: Path
) -> None:
    name = "xla_ffi_python_cpu_callback"
    command = [python_of("jax"), "-c", EXPORTS, str(tmp_path), name]
    subprocess.run(command, check=True)
    with pytest.raises(Refused, match=f"calls {name}, .*allow it with --mlms-allow-code"):
        jax.load(tmp_path / "call_back.jax")
    jax.load(tmp_path / "compute.jax")
