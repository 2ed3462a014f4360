"""The files that manifests/digits/train.py makes, held against those that are shipped.

The images are the same exactly. 80 epochs carry the last digit of a sum, which differs from one CPU
to another, into all weights: another CPU makes another network of the same shape and accuracy. That
is what these tests ask of every machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from pytest_mlms.core.records import Stack
from pytest_mlms.manifest import load
from pytest_mlms.provide.artifacts.fetch import default_cache
from pytest_mlms.provide.stacks.launch import prepare
from tests.support.project import DIGITS

pytestmark = pytest.mark.slow

SCRIPT = DIGITS / "train.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the script has run, in an environment with what its docstring says."""
    match = re.search(r"pip install (.*)", SCRIPT.read_text())
    assert match
    stack = Stack("train", "any", python="3.11", requirements=tuple(match[1].split()))
    python = prepare(stack, default_cache()).command[0]
    folder = tmp_path_factory.mktemp("digits")
    shutil.copy(SCRIPT, folder)
    done = subprocess.run([python, SCRIPT.name], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return folder


def test_the_held_out_images_and_the_labels_are_those_that_are_shipped(made: Path) -> None:
    again = np.load(made / "digits_test.npz")
    shipped = np.load(DIGITS / "digits_test.npz")
    assert sorted(again.files) == sorted(shipped.files)
    for name in shipped.files:
        assert again[name].dtype == shipped[name].dtype
        assert np.array_equal(again[name], shipped[name])
    assert (made / "labels.txt").read_bytes() == (DIGITS / "labels.txt").read_bytes()


def test_the_network_has_the_layers_that_are_shipped(made: Path) -> None:
    again = onnx.load(made / "digits_cnn.onnx")
    shipped = onnx.load(DIGITS / "digits_cnn.onnx")
    assert list(again.graph.node) == list(shipped.graph.node)
    assert weight_shapes(again) == weight_shapes(shipped)


def weight_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}


def test_the_network_is_as_accurate_as_the_manifest_asks(made: Path) -> None:
    digits = np.load(made / "digits_test.npz")
    images = (digits["image"][:, None] / 16).astype(np.float32)
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(made / "digits_cnn.onnx", providers=providers)
    (logits,) = session.run(None, {"image": images})
    (limit,) = load(DIGITS / "digits.yaml").manifest.thresholds.model_dump()["top1"]
    assert np.mean(np.asarray(logits).argmax(1) == digits["label"]) >= limit["min"]
