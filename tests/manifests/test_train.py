"""That manifests/digits/train.py makes what is shipped: the images exactly, the network as far as a
CPU allows.

80 epochs carry the last digit of a sum, which differs from one CPU to another, into all weights:
another CPU makes another network of the same shape and worth. That is what is asked here of every
machine.
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

from pytest_mlms.artifacts.fetch import default_cache
from pytest_mlms.manifest import load
from pytest_mlms.records import Stack
from pytest_mlms.stacks.launch import prepare
from tests.support.project import DIGITS

pytestmark = pytest.mark.slow

SCRIPT = DIGITS / "train.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the script has run, in an environment with what its docstring says."""
    needs = re.search(r"pip install (.*)", SCRIPT.read_text())
    assert needs
    stack = Stack("train", "any", python="3.11", requirements=tuple(needs[1].split()))
    python = prepare(stack, default_cache()).command[0]
    folder = tmp_path_factory.mktemp("digits")
    shutil.copy(SCRIPT, folder)
    done = subprocess.run([python, SCRIPT.name], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    return folder


def test_the_images_that_are_held_out_and_the_labels_are_those_that_are_shipped(made: Path) -> None:
    again, shipped = np.load(made / "digits_test.npz"), np.load(DIGITS / "digits_test.npz")
    assert sorted(again.files) == sorted(shipped.files)
    for name in shipped.files:
        assert again[name].dtype == shipped[name].dtype
        assert np.array_equal(again[name], shipped[name])
    assert (made / "labels.txt").read_bytes() == (DIGITS / "labels.txt").read_bytes()


def test_the_network_has_the_same_layers_and_is_as_often_right_as_the_manifest_asks(
    made: Path,
) -> None:
    again, shipped = (onnx.load(folder / "digits_cnn.onnx") for folder in (made, DIGITS))
    assert list(again.graph.node) == list(shipped.graph.node)
    shapes = [
        {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
        for model in (again, shipped)
    ]
    assert shapes[0] == shapes[1]
    images = np.load(made / "digits_test.npz")
    session = onnxruntime.InferenceSession(
        made / "digits_cnn.onnx", providers=["CPUExecutionProvider"]
    )
    (logits,) = session.run(None, {"image": (images["image"][:, None] / 16).astype(np.float32)})
    (limit,) = load(DIGITS / "digits.yaml").manifest.thresholds.top1
    assert np.mean(logits.argmax(1) == images["label"]) >= limit.min
