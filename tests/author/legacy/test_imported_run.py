"""A manifest of the original form, imported and run: its accuracy is that of a plain script."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tests.support.archives import write_zip
from tests.support.fileserver import serving
from tests.support.project import HANG_GUARD, QUICK

HEIGHT, WIDTH, CLASSES, PICTURES = 4, 6, 5, 20
MEAN, SCALE = [30, 120, 200], [50, 60, 70]

MANIFEST = """\
name: Linear
framework:
  name: Onnxruntime
  version: '>=1.0'
version: 1.0
inputs:
  - type: image
    parameters:
      element_type: float32
      input_layer: 0
      layout: CHW
      color_mode: BGR
      dimensions: [3, {height}, {width}]
      mean: {mean}
      scale: {scale}
output:
  type: classification
  parameters:
    probabilities_layer: 0
    probabilities_transform: softmax
    features_url: {url}/names.txt
model:
  base_url: {url}
  graph_path: linear.onnx
  is_archive: false
  graph_checksum: {md5}
attributes:
  training_dataset: Noise
"""


def linear(weights: NDArray[np.float32]) -> bytes:
    """Return an ONNX model: the weighted sums of all values of a picture."""
    picture = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, HEIGHT, WIDTH])
    sums = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", CLASSES])
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "linear", [picture], [sums], [numpy_helper.from_array(weights, "w")]
    )
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def best_class(picture: Image.Image, weights: NDArray[np.float32]) -> int:
    """Return the class as MLModelScope's agents computed it."""
    resized = picture.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
    pixels = np.asarray(resized, np.float32)
    normalized = (pixels - np.array(MEAN, np.float32)) / np.array(SCALE, np.float32)
    blue_first = normalized[:, :, ::-1].transpose(2, 0, 1)
    return int(np.argmax(blue_first.reshape(-1) @ weights))


def png(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "PNG")
    return data.getvalue()


def write_dataset(path: Path, weights: NDArray[np.float32]) -> None:
    """Write pictures of noise, labelled by the script, every fourth one wrongly."""
    rng = np.random.default_rng(7)
    members = {}
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["input", "label"])
    for number in range(PICTURES):
        levels = rng.integers(0, 256, (11, 9, 3), np.uint8)
        picture = Image.fromarray(levels)
        members[f"{number}.png"] = png(picture)
        wrong = number % 4 == 0
        writer.writerow([f"{number}.png", (best_class(picture, weights) + wrong) % CLASSES])
    members["labels.csv"] = table.getvalue().encode()
    write_zip(path, members)


@pytest.mark.slow
def test_an_imported_manifest_has_the_accuracy_of_a_script(tmp_path: Path) -> None:
    weights = np.random.default_rng(3).standard_normal((3 * HEIGHT * WIDTH, CLASSES), np.float32)
    write_dataset(tmp_path / "noise.zip", weights)
    with serving() as server:
        server.files["/linear.onnx"] = linear(weights)
        server.files["/names.txt"] = b"a\nb\nc\nd\ne\n"
        text = MANIFEST.format(
            height=HEIGHT,
            width=WIDTH,
            mean=MEAN,
            scale=SCALE,
            url=server.url(""),
            md5=hashlib.md5(server.files["/linear.onnx"], usedforsecurity=False).hexdigest(),
        )
        (tmp_path / "linear.yml").write_text(text)
        run_in(tmp_path, "pytest_mlms", "import", "linear.yml", "--dataset", "noise=noise.zip")
        run_in(tmp_path, "pytest", "--mlms-manifests=imported", "-k", "accuracy", *QUICK)
    lines = (tmp_path / "mlms-results/latest/results.jsonl").read_text().splitlines()
    (item,) = [line for line in map(json.loads, lines) if line["type"] == "item"]
    assert item["estimates"]["top1"]["value"] == 0.75
    assert (tmp_path / "imported" / "linear.sha256").read_text().endswith("/names.txt\n")


def run_in(folder: Path, module: str, *arguments: str) -> None:
    """Run a module in a folder; print what it said."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "MLMS_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=HANG_GUARD,
    )
    assert done.returncode == 0, done.stdout + done.stderr
