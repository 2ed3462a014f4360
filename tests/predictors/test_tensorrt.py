"""TensorRT as far as it goes without a GPU.

TensorRT for RTX parses and builds there, and running is refused in words.
"""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlms_predictors._tensorrt_engine import engine_error

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import Framework, python_of
from tests.support.project import DIGITS, ROOT

BUILD = """
import runpy, sys
gpu = runpy.run_path(sys.argv[1] + "/ci/gpu.py")
gpu["share"]()
predictor = runpy.run_path(sys.argv[1] + "/predictors/tensorrt.py")
plan = predictor["build"](sys.argv[2], {"precision": sys.argv[3], "cache": sys.argv[4]}, predictor["Log"]())
print(plan.nbytes)
"""


@pytest.fixture(scope="module")
def python() -> str:
    if importlib.util.find_spec("tensorrt"):
        return python_of("tensorrt", "tensorrt")
    return python_of("tensorrt-rtx", "tensorrt_rtx")


@pytest.fixture
def tensorrt(python: str, tmp_path: Path) -> Iterator[Framework]:
    framework = Framework(python, "tensorrt", tmp_path / "log")
    yield framework
    framework.agent.close()


def test_it_says_what_it_can_not_do(tensorrt: Framework) -> None:
    if tensorrt.hello["devices"]:
        pytest.skip("here is a GPU")
    with pytest.raises(Refused, match="there is no CUDA driver here"):
        tensorrt.load(DIGITS / "digits_cnn.onnx", device="cuda:0")
    with pytest.raises(Refused, match="TensorRT runs on cuda:N"):
        tensorrt.load(DIGITS / "digits_cnn.onnx", device="cpu")
    with pytest.raises(Refused, match="no option 'fp16'; this predictor knows precision"):
        tensorrt.load(DIGITS / "digits_cnn.onnx", device="cuda:0", fp16=True)


FAILED = (
    "IRuntime::deserializeCudaEngine: Error Code 4: Internal Error (Engine deserialization failed.)"
)
REFUSED = {  # as users of TensorRT 8 to 10 reported its words to its authors
    "The engine plan file is not compatible with this version of TensorRT, expecting library version 8.2.4 got 8.2.3, "
    "please rebuild.": "was built by another version of it",
    "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion stdVersionRead == "
    "serializationVersion failed.Version tag does not match. Note: Current Version: 213, Serialized Engine Version: "
    "205)": "was built by another version of it",
    "IRuntime::deserializeCudaEngine: Error Code 6: API Usage Error (The engine plan file is generated on an "
    "incompatible device, expecting compute 8.9 got compute 8.6, please rebuild.)": "was built on another model of GPU",
    "IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion magicTagRead == kMAGIC_TAG "
    "failed.Magic tag does not match)": "is no engine",
}


@pytest.mark.parametrize("words", REFUSED)
def test_an_engine_that_tensorrt_refuses_is_told_with_what_to_do(words: str) -> None:
    fault = engine_error(False, ["Loaded engine size: 6 MiB", words, FAILED], "11.4.0")
    assert fault.startswith(
        f"TensorRT 11.4.0 can't run the engine, which {REFUSED[words]}; build it again here, or name"
    )
    assert fault.endswith(words)


def test_an_engine_of_another_model_of_gpu_is_refused_though_tensorrt_takes_it() -> None:
    words = (
        "Using an engine plan file across different models of devices is not recommended and is likely to affect "
        "performance or even cause errors."
    )
    assert "was built on another model of GPU; build it again here" in engine_error(
        True, [words], "11.4.0"
    )


def test_a_reason_that_is_not_known_is_shown_and_an_engine_that_is_taken_has_no_fault() -> None:
    assert engine_error(True, ["TensorRT was linked against another cuDNN"], "11.4.0") == ""
    assert (
        engine_error(False, [FAILED], "11.4.0") == f"TensorRT 11.4.0 can't run the engine: {FAILED}"
    )
    assert engine_error(False, [], "11.4.0").endswith("it gave no reason")


@pytest.mark.slow
def test_an_engine_is_built_of_onnx_and_its_timings_are_kept(python: str, tmp_path: Path) -> None:
    cache = tmp_path / "timings"
    arguments = [str(ROOT), str(DIGITS / "digits_cnn.onnx"), "fp32", str(cache)]
    done = subprocess.run([python, "-B", "-c", BUILD, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1 << 16, "it holds the weights"
    assert cache.stat().st_size > 0


@pytest.mark.slow
def test_another_frameworks_file_is_refused_by_the_parser(python: str, tmp_path: Path) -> None:
    arguments = [str(ROOT), str(DIGITS / "digits_cnn.pt2"), "fp32", str(tmp_path / "timings")]
    done = subprocess.run([python, "-B", "-c", BUILD, *arguments], capture_output=True, text=True)
    assert "Failed to parse the ONNX model" in done.stderr
