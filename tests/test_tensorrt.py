"""TensorRT as far as it goes without a GPU: TensorRT for RTX parses and builds there, and running is refused in words."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from frameworks import Framework, python_of

from conftest import DIGITS, ROOT
from pytest_mlms.agent import Refused

BUILD = """
import runpy, sys
gpu = runpy.run_path(sys.argv[1] + "/ci/gpu")
gpu["share"]()
predictor = runpy.run_path(sys.argv[1] + "/predictors/tensorrt.py")
plan = predictor["build"](sys.argv[2], {"precision": sys.argv[3], "cache": sys.argv[4]}, predictor["_Log"]())
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
