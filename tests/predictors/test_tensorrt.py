"""TensorRT as far as it goes without a GPU.

TensorRT for RTX parses and builds there. The reasons why engines are refused are tested with
messages as users of TensorRT 8 to 10 reported them to its authors.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlms_predictors._tensorrt_engine import engine_error

from pytest_mlms.measure.agent.process import Refused
from tests.support.driver import H200, Driver
from tests.support.frameworks import Framework, python_of
from tests.support.project import DIGITS, ROOT

GRAPH = DIGITS / "digits_cnn.onnx"
BUILD = """
import runpy, sys
root, graph, precision, cache = sys.argv[1:]
gpu = runpy.run_path(root + "/ci/gpu_paths.py")
gpu["share"]()
predictor = runpy.run_path(root + "/predictors/tensorrt.py")
plan = predictor["build"](graph, {"precision": precision, "cache": cache}, predictor["Log"]())
print(plan.nbytes)
"""


@pytest.fixture(scope="module")
def python() -> str:
    if importlib.util.find_spec("tensorrt"):
        return python_of("tensorrt")
    return python_of("tensorrt-rtx")


@pytest.fixture
def tensorrt(python: str, tmp_path: Path) -> Iterator[Framework]:
    framework = Framework(python, "tensorrt", tmp_path / "log")
    yield framework
    framework.agent.close()


STAND_IN = """
import ctypes
import numpy

__version__ = "10.0"
made, most = [], 3

class ILogger:
    WARNING = 2

class IProfiler:
    pass

class TensorIOMode:
    INPUT, OUTPUT = 0, 1

class Context:
    def set_input_shape(self, name, shape):
        self.shape = shape
        return True

    def get_tensor_shape(self, name):
        return self.shape

    def set_tensor_address(self, name, address):
        setattr(self, name, address)

    def execute_async_v3(self, stream):
        ctypes.memmove(self.y, self.x, 4 * int(numpy.prod(self.shape)))
        return True

class Engine:
    num_io_tensors = 2
    get_tensor_name = staticmethod("xy".__getitem__)
    get_tensor_mode = staticmethod("xy".index)

    def get_tensor_shape(self, name):
        return [-1]

    def get_tensor_dtype(self, name):
        return "float32"

    def create_execution_context(self):
        if len(made) == most:
            self.log.log(1, "Error Code 2: OutOfMemory")
            return None
        made.append(Context())
        return made[-1]

class Runtime:
    def __init__(self, log):
        Engine.log = log

    def deserialize_cuda_engine(self, plan):
        return Engine()

nptype = numpy.dtype
"""
"""As much of TensorRT as calls need: an engine whose output is its input."""
BINDS = """
import numpy
import tensorrt
from mlms_predictors import Load, tensorrt as predictor

loaded = predictor.load(Load({"graph": __file__}, "cuda:0", None, {}))
given = [numpy.full(size, number, "float32") for number, size in enumerate((2, 2, 5, 2))]
calls = [predictor.bind(loaded, {"x": array}) for array in given]
for array, call in zip(given * 2, calls * 2):
    assert (call()[0] == array).all()
assert (predictor.predict(loaded, {"x": given[2]})[0] == given[2]).all()
print(len(tensorrt.made))
predictor.close(loaded)
predictor.bind(loaded, {"x": numpy.zeros(7, "float32")})
"""


def test_bound_calls_of_a_shape_share_a_context_and_one_without_room_says_so(
    driver: Driver, tmp_path: Path
) -> None:
    driver.says(H200)
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    (tmp_path / "tensorrt.py").write_text(STAND_IN)
    (tmp_path / "binds.py").write_text(BINDS)
    command = [sys.executable, "-B", str(tmp_path / "binds.py")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split() == ["3"], done.stderr
    assert "TensorRT can't make a context for calls: Error Code 2: OutOfMemory" in done.stderr


def test_it_is_refused_without_a_driver(tensorrt: Framework) -> None:
    if tensorrt.hello["devices"]:
        pytest.skip("here is a GPU")
    with pytest.raises(Refused, match="there is no CUDA driver here"):
        tensorrt.load(GRAPH, device="cuda:0")


def test_the_cpu_and_unknown_options_are_refused(tensorrt: Framework) -> None:
    with pytest.raises(Refused, match="TensorRT runs on cuda:N"):
        tensorrt.load(GRAPH, device="cpu")
    with pytest.raises(Refused, match="no option 'fp16'; this predictor knows precision"):
        tensorrt.load(GRAPH, device="cuda:0", fp16=True)


FAILED = (
    "IRuntime::deserializeCudaEngine: Error Code 4: Internal Error (Engine deserialization failed.)"
)
OTHER_VERSION = "was built by another version of it"
OTHER_GPU = "was built on another model of GPU"
LIBRARY_VERSION = (
    "The engine plan file is not compatible with this version of TensorRT, expecting library "
    "version 8.2.4 got 8.2.3, please rebuild."
)
VERSION_TAG = (
    "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
    "stdVersionRead == serializationVersion failed.Version tag does not match. Note: Current "
    "Version: 213, Serialized Engine Version: 205)"
)
DEVICE = (
    "IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error (The engine plan file is "
    "generated on an incompatible device, expecting compute 8.9 got compute 8.6, please rebuild.)"
)
MAGIC_TAG = (
    "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion "
    "magicTagRead == kMAGIC_TAG failed.Magic tag does not match)"
)
REFUSED = {
    LIBRARY_VERSION: OTHER_VERSION,
    VERSION_TAG: OTHER_VERSION,
    DEVICE: OTHER_GPU,
    MAGIC_TAG: "is no engine",
}
"""Messages in TensorRT's log, and what they mean."""
WARNING = (
    "Using an engine plan file across different models of devices is not recommended and is likely "
    "to affect performance or even cause errors."
)


@pytest.mark.parametrize(("message", "meaning"), REFUSED.items())
def test_the_reason_of_a_refused_engine_comes_with_what_to_do(message: str, meaning: str) -> None:
    error = engine_error(False, ["Loaded engine size: 6 MiB", message, FAILED], "11.4.0")
    advice = "build it again here, or name"
    assert error.startswith(f"TensorRT 11.4.0 can't run the engine, which {meaning}; {advice}")
    assert error.endswith(message)


def test_an_engine_of_another_model_of_gpu_is_refused_though_tensorrt_takes_it() -> None:
    error = engine_error(True, [WARNING], "11.4.0")
    assert f"{OTHER_GPU}; build it again here" in error


def test_a_reason_that_is_not_known_is_shown() -> None:
    error = engine_error(False, [FAILED], "11.4.0")
    assert error == f"TensorRT 11.4.0 can't run the engine: {FAILED}"
    assert engine_error(False, [], "11.4.0").endswith("it gave no reason")


def test_an_engine_that_is_loaded_has_no_error() -> None:
    assert engine_error(True, ["TensorRT was linked against another cuDNN"], "11.4.0") == ""


def build(python: str, graph: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    """Build an engine in an interpreter that has TensorRT."""
    command = [python, "-B", "-c", BUILD, str(ROOT), str(graph), "fp32", str(cache)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_an_engine_is_built_of_onnx_and_its_timings_are_kept(python: str, tmp_path: Path) -> None:
    cache = tmp_path / "timings"
    done = build(python, GRAPH, cache)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1 << 16, "it holds the weights"
    assert cache.stat().st_size > 0


@pytest.mark.slow
def test_another_frameworks_file_is_refused_by_the_parser(python: str, tmp_path: Path) -> None:
    done = build(python, DIGITS / "digits_cnn.pt2", tmp_path / "timings")
    assert "Failed to parse the ONNX model" in done.stderr
