"""Small manifests in the forms of MLModelScope, written for the tests."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from pytest_mlms.author.legacy.python_forms import Preprocess
from pytest_mlms.author.legacy.reading import read_legacy
from pytest_mlms.author.legacy.records import LegacyManifest
from pytest_mlms.author.legacy.translated import Translation
from pytest_mlms.author.legacy.translation import translate
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.schema import Input
from tests.support.embedded_python import POSTPROCESS, PREPROCESS

__all__ = [
    "A0",
    "A1",
    "A2",
    "detector",
    "input_of",
    "native",
    "read_text",
    "translated",
    "with_lines",
    "with_python",
]

A0 = """\
name: Stub
framework: mxnet
version: 1.0
input: {type: image, dimensions: [3, 8, 8]}
output:
  type: label
trained_url: https://example.org/page
"""

A1 = """\
name: Old
framework:
  name: MXNet
  version: 1.4.0
version: 1.0
container:
  amd64: {cpu: "raiproject/carml-caffe:amd64-gpu", gpu: "raiproject/carml-caffe:amd64-cpu"}
inputs:
  - type: image
    parameters:
      dimensions: [3, 8, 6]
      mean: [30, 20, 10]
output:
  type: feature
  parameters:
    features_url: http://s3.amazonaws.com/example/names.txt
    features_checksum: 0123456789abcdef0123456789abcdef
model:
  base_url: https://example.org/old/
  graph_path: old-symbol.json
  weights_path: old-0000.params
  is_archive: false
  graph_checksum: 11111111111111111111111111111111
  weights_checksum: 22222222222222222222222222222222
"""

A2 = """\
name: Small Network
framework:
  name: TensorFlow
  version: 1.12
version: 1.10
description: >
  A network of
  two layers.
references:
  - https://example.org/paper
license: unrestricted
inputs:
  - type: image
    parameters:
      element_type: float32
      input_layer: 'pixels'
      layout: HWC
      color_mode: RGB
      dimensions: [3, 8, 6]
      mean: [30, 20, 10]
      scale: 2
output:
  type: classification
  parameters:
    element_type: float32
    probabilities_layer: 'scores'
    features_url: https://example.org/names.txt
    features_checksum: 0123456789abcdef0123456789abcdef
model:
  graph_path: https://example.org/small.pb
  is_archive: false
  graph_checksum: 11111111111111111111111111111111
attributes:
  training_dataset: Image Net
  top1: 70.5
"""

_DETECTION = """\
output:
  type: boundingbox
  parameters:
    boxes_layer: 'boxes'
    probabilities_layer: 'scores'
    classes_layer: 'classes'
    features_url: https://example.org/names.txt
    features_checksum: 0123456789abcdef0123456789abcdef
"""


def detector(framework: str = "TensorFlow", **changed: str) -> str:
    """Return A2 as a detector; lines of its output by their keys can be changed, or added."""
    output = _DETECTION
    for key, value in changed.items():
        line = re.compile(rf"    {key}: .*\n")
        new = f"    {key}: {value}\n"
        output = line.sub(new, output) if line.search(output) else output + new
    beginning, _, rest = A2.partition("output:\n")
    _, _, end = rest.partition("model:\n")
    text = f"{beginning}{output}model:\n{end}"
    return text.replace("name: TensorFlow", f"name: {framework}")


_B = """\
name: Recent
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
      layout: CHW
      color_mode: RGB
      dimensions: [3, 32, 32]
      mean: [127.5, 63.75, 31.875]
      scale: [51, 25.5, 102]
outputs:
  - type: OUTPUT
    parameters:
      element_type: float32
model:
  is_archive: false
  graph_path: https://example.org/recent.onnx
  graph_checksum: 11111111111111111111111111111111
  features_path: https://example.org/names.txt
  features_checksum: 0123456789abcdef0123456789abcdef
"""


def with_python(preprocess: str, postprocess: str, output: str = "classification") -> str:
    """Return a manifest of dialect B with these of the forms of tests.support.embedded_python."""
    text = _B.replace("OUTPUT", output)
    for key, code in (
        ("preprocess", PREPROCESS.get(preprocess, preprocess)),
        ("postprocess", POSTPROCESS.get(postprocess, postprocess)),
    ):
        text += f"{key}: |\n{textwrap.indent(code, '  ')}\n"
    return text


def with_lines(text: str, old: str, new: str) -> str:
    """Return a text with some of its lines replaced, which must be there."""
    assert old in text
    return text.replace(old, new)


def input_of(found: Preprocess) -> Input:
    """Return an input of a manifest with the steps that were recognised."""
    element_type = found.element_types[0]
    steps = list(found.steps)
    fields = {"name": "x", "type": found.type, "element_type": element_type, "steps": steps}
    layout = {"layout": found.layout} if found.layout else {}
    return Input.model_validate({**fields, **layout})


def read_text(folder: Path, text: str) -> LegacyManifest:
    """Return the records of a manifest."""
    path = folder / "legacy.yml"
    path.write_text(text)
    manifest = read_legacy(path)
    assert manifest is not None
    return manifest


def translated(folder: Path, text: str) -> Translation:
    """Return the translation of a manifest."""
    return translate(read_text(folder, text))


def native(folder: Path, text: str) -> Any:
    """Return the content of a manifest's translation."""
    document = yaml12.parse(translated(folder, text).text)
    assert not document.errors
    return document.value
