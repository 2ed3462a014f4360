"""The paths to a GPU: run where there is one, with a word of why not where there is none."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.project import DIGITS, ROOT

GPU: dict[str, Any] = runpy.run_path(str(ROOT / "ci" / "gpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("path", GPU["PATHS"], ids=lambda path: path.name)
def test_a_path_to_a_gpu_gives_the_right_outputs_and_layers(path: Any, tmp_path: Path) -> None:
    try:
        used, p50, layers, _ = GPU["try_path"](path, tmp_path)
    except GPU["NotRun"] as reason:
        pytest.skip(str(reason))
    assert used == "cuda:0"
    assert min(p50.values()) > 0
    assert layers


def test_the_same_walk_on_the_cpu_finds_no_fault(tmp_path: Path) -> None:
    way = GPU["Way"]("onnxruntime, CPU", "onnxruntime", "digits_cnn.onnx", {})
    used, p50, layers, seen = GPU["try_path"](way, tmp_path, "cpu")
    assert used == "cpu"
    assert set(p50) == {1, 64}
    assert layers
    topics = [
        "kernel by cupti",
        "kernel by kineto",
        "kernel by layers",
        "hardware by nvml",
        "hardware by gpm",
        "peaks",
    ]
    assert sorted(line.partition(":")[0] for line in seen) == sorted([*topics, "structure"])
    assert any("TFLOP/s" in line for line in seen)


def test_wrong_outputs_do_not_pass(tmp_path: Path) -> None:
    model = (DIGITS / "digits_cnn.onnx").read_bytes()
    name = b"conv2d_5_biasJ"  # TensorProto.name, and then the tag of its raw_data
    at = model.index(name) + len(name) + 2
    (tmp_path / "wrong.onnx").write_bytes(model[:at] + np.float32(100).tobytes() + model[at + 4 :])
    with pytest.raises(AssertionError):
        GPU["try_path"](GPU["Way"]("wrong", "onnxruntime", "wrong.onnx", {}), tmp_path, "cpu")


def test_every_path_has_a_line_and_what_is_lacking_is_no_failure() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "ci" / "gpu"), sys.executable], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()[1:]
    assert [line[:24].strip() for line in lines] == [path.name for path in GPU["PATHS"]]
    assert all(line[25:33].strip() in ("ran", "not run") for line in lines), done.stdout
    assert done.returncode == 0
    assert not done.stderr
