"""The digits network with three channels, a manifest of the original form, and its pictures."""

from __future__ import annotations

import csv
import hashlib
import io
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from PIL import Image

from tests.support.archives import write_zip
from tests.support.fileserver import FileServer
from tests.support.project import DIGITS

__all__ = ["accuracy_of_script", "serve_network", "serve_network_with_code", "write_dataset"]

PICTURES = 600
_LEVEL = 15  # of a picture, for a level of the data, which has 16

_MANIFEST = """\
name: Digits RGB
framework:
  name: Onnxruntime
  version: 1.7.1
version: 1.0
inputs:
  - type: image
    parameters:
      element_type: float32
      input_layer: 0
      layout: CHW
      color_mode: RGB
      dimensions: [3, 8, 8]
      scale: 240
output:
  type: classification
  parameters:
    probabilities_layer: 0
    probabilities_transform: softmax
    features_url: {url}/names.txt
model:
  graph_path: {url}/digits.onnx
  is_archive: false
  graph_checksum: {md5}
attributes:
  training_dataset: Digits
"""


_MANIFEST_WITH_CODE = """\
name: Digits
framework:
  name: Onnxruntime
  version: 1.7.1
version: 1.0
modality: image_classification
inputs:
  - type: image
    parameters:
      element_type: float32
      input_layer: 0
outputs:
  - type: classification
    parameters:
      element_type: float32
model:
  graph_path: {url}/digits.onnx
  is_archive: false
  graph_checksum: {md5}
  features_path: {url}/names.txt
attributes:
  training_dataset: Digits
"""


def serve_network_with_code(server: FileServer, preprocess: str, postprocess: str) -> str:
    """Serve the network; return a manifest of dialect B with this code."""
    beginning = _served(server, _MANIFEST_WITH_CODE)
    texts = (("preprocess", preprocess), ("postprocess", postprocess))
    parts = [f"{key}: |\n{textwrap.indent(code, '  ')}\n" for key, code in texts]
    return beginning + "".join(parts)


def serve_network(server: FileServer) -> str:
    """Serve the network and its names; return a manifest of dialect A2 that names them."""
    return _served(server, _MANIFEST)


def _served(server: FileServer, manifest: str) -> str:
    data = _network()
    server.files["/digits.onnx"] = data
    server.files["/names.txt"] = b"".join(b"%d\n" % number for number in range(10))
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return manifest.format(url=server.url(""), md5=md5)


def _network() -> bytes:
    """Return the network of manifests/digits behind the mean of three channels."""
    model = onnx.load(DIGITS / "digits_cnn.onnx")
    axes = helper.make_tensor("channel", TensorProto.INT64, [1], [1])
    mean = helper.make_node("ReduceMean", ["rgb", "channel"], ["image"])
    if model.opset_import[0].version < 18:
        mean = helper.make_node("ReduceMean", ["rgb"], ["image"], axes=[1])
    else:
        model.graph.initializer.append(axes)
    model.graph.node.insert(0, mean)
    picture = helper.make_tensor_value_info("rgb", TensorProto.FLOAT, ["n", 3, 8, 8])
    del model.graph.input[:]
    model.graph.input.append(picture)
    data: bytes = model.SerializeToString()
    return data


def write_dataset(folder: Path) -> None:
    """Write pictures of the digits with their labels, and a datasets.yaml that describes them."""
    members: dict[str, bytes] = {}
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["input", "label"])
    data = np.load(DIGITS / "digits_test.npz")
    for number in range(PICTURES):
        grey = Image.fromarray(data["image"][number] * _LEVEL)
        content = io.BytesIO()
        grey.convert("RGB").save(content, "PNG")
        members[f"{number}.png"] = content.getvalue()
        writer.writerow([f"{number}.png", data["label"][number]])
    members["labels.csv"] = table.getvalue().encode()
    archive = write_zip(folder / "digits.zip", members)
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    entry = f"digits: {{version: 1.0.0, source: digits.zip, sha256: '{sha256}'}}\n"
    (folder / "datasets.yaml").write_text(entry)


def accuracy_of_script() -> float:
    """Return the share of digits that ONNX Runtime alone tells right."""
    data = np.load(DIGITS / "digits_test.npz")
    session = onnxruntime.InferenceSession(DIGITS / "digits_cnn.onnx")
    pixels = data["image"][:PICTURES, np.newaxis].astype(np.float32) / 16
    (logits,) = session.run(None, {"image": pixels})
    right = np.asarray(logits).argmax(axis=1) == data["label"][:PICTURES]
    return float(right.mean())
