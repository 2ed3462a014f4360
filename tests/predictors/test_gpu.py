"""The paths to a GPU: run where there is one, skipped with the reason where there is none."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.project import DIGITS, ROOT

GPU: Any = SimpleNamespace(**runpy.run_path(str(ROOT / "ci" / "gpu_paths.py")))


@pytest.mark.gpu
@pytest.mark.parametrize("path", GPU.PATHS, ids=lambda path: path.name)
def test_a_path_to_a_gpu_gives_the_right_outputs_and_layers(path: Any, tmp_path: Path) -> None:
    try:
        result = GPU.try_path(path, tmp_path)
    except GPU.NotRun as reason:
        pytest.skip(str(reason))
    assert result.device == "cuda:0"
    assert min(result.p50.values()) > 0
    assert result.layers


def test_the_same_steps_succeed_on_the_cpu(tmp_path: Path) -> None:
    way = GPU.Way("onnxruntime, CPU", "onnxruntime", "digits_cnn.onnx", {})
    result = GPU.try_path(way, tmp_path, "cpu")
    assert result.device == "cpu"
    assert set(result.p50) == {1, 64}
    assert result.layers
    topics = {line.partition(":")[0] for line in result.lines}
    assert topics == {
        "kernel by cupti",
        "kernel by kineto",
        "kernel by layers",
        "hardware by nvml",
        "hardware by gpm",
        "peaks",
        "structure",
    }
    assert any("TFLOP/s" in line for line in result.lines)


def test_no_path_asks_for_what_its_predictor_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU's time is too short to learn that there."""
    onnxruntime = pytest.importorskip("mlms_predictors.onnxruntime")
    known = list(onnxruntime._PROVIDERS.values())
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: known)
    for path in GPU.PATHS:
        if path.predictor == "onnxruntime":
            assert onnxruntime._providers("cuda:0", path.options)


def test_wrong_outputs_do_not_pass(tmp_path: Path) -> None:
    model = (DIGITS / "digits_cnn.onnx").read_bytes()
    name = b"conv2d_5_biasJ"  # TensorProto.name, and then the tag of its raw_data
    at = model.index(name) + len(name) + 2
    wrong = model[:at] + np.float32(100).tobytes() + model[at + 4 :]
    (tmp_path / "wrong.onnx").write_bytes(wrong)
    way = GPU.Way("wrong", "onnxruntime", "wrong.onnx", {})
    with pytest.raises(AssertionError):
        GPU.try_path(way, tmp_path, "cpu")


def test_every_path_is_a_step_and_a_missing_framework_is_no_failure(tmp_path: Path) -> None:
    command = ["bash", str(ROOT / "ci" / "gpu"), sys.executable, "--only", "path"]
    done = subprocess.run([*command, "--out", tmp_path], capture_output=True, text=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| path ")]
    assert {row[0] for row in rows} == {f"| path {path.name}" for path in GPU.PATHS}
    assert done.returncode == 0, done.stdout
    assert not done.stderr
