"""Small models of a text, of boxes, of a mask, of a sound and of plain numbers, with their manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.language import WORDS, write_tokenizer
from tests.support.project import sha256

BOXES = [[0, 0.9, 0, 0, 0.5, 0.5], [1, 0.75, 0.25, 0.5, 0.75, 1], [1, 0.01, 0, 0, 1, 1]]
"""Class, score, left, top, right, bottom in shares of the picture; class 0 is the background."""


def write_text_model(folder: Path) -> Path:
    """Write a model that tells texts with cats from those with mats; return its manifest."""
    digest = write_tokenizer(folder / "tokenizer.json")
    words = np.zeros((len(WORDS), 2), np.float32)
    words[WORDS.index("cat"), 0] = words[WORDS.index("mat"), 1] = 2
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["found"]),
        helper.make_node("ReduceSum", ["found", "axis"], ["logits"], keepdims=0),
    ]
    weights = {"words": words, "axis": np.array([1])}
    graph = _save(folder, nodes, ("ids", TensorProto.INT64, [None, 6]), [None, 2], weights)
    (folder / "labels.txt").write_text("about a cat\nabout a mat\n")
    labels = sha256((folder / "labels.txt").read_bytes())
    steps = [{"tokenize": {"file": "tokenizer.json", "sha256": digest, "length": 6}}]
    inputs = [{"name": "ids", "column": "text", "type": "text", "element_type": "int64"}]
    inputs[0]["steps"] = steps  # type: ignore[assignment]
    top = {"k": 2, "labels": "labels.txt", "sha256": labels}
    outputs = [{"name": "logits", "type": "classification", "steps": ["softmax", {"top_k": top}]}]
    return _manifest(folder, "text-classification", graph, inputs, outputs)


def write_box_model(folder: Path) -> Path:
    """Write a model that sees BOXES in every picture; return its manifest."""
    nodes = [
        helper.make_node("GlobalMaxPool", ["x"], ["most"]),
        helper.make_node("ReduceMean", ["most"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "boxes"], ["logits"]),
    ]
    weights = {"zero": np.zeros(1, np.float32), "boxes": np.array([BOXES], np.float32)}
    graph = _save(folder, nodes, ("x", TensorProto.FLOAT, [1, 3, 8, 8]), [1, 3, 6], weights)
    steps: list[Any] = [{"decode": {"color": "RGB"}}, {"resize": {"size": [8, 8]}}]
    inputs = [{"name": "x", "type": "image", "element_type": "float32", "layout": "NCHW"}]
    inputs[0]["steps"] = steps  # type: ignore[assignment]
    names = ["class", "score", "x1", "y1", "x2", "y2"]
    steps = [
        {"columns": {"names": names, "units": "relative"}},
        {"min_score": {"score": 0.1}},
        {"classes": {"names": [None, "plate"]}},
    ]
    outputs = [{"name": "logits", "type": "boxes", "steps": steps}]
    return _manifest(folder, "object-detection", graph, inputs, outputs)


def write_mask_model(folder: Path) -> Path:
    """Write a model of the strongest colour of each pixel; return its manifest."""
    nodes = [helper.make_node("Identity", ["x"], ["logits"])]
    shape = [1, 3, 32, 32]
    graph = _save(folder, nodes, ("x", TensorProto.FLOAT, shape), shape, {})
    steps: list[Any] = [{"decode": {"color": "RGB"}}, {"resize": {"size": [32, 32]}}]
    image = {"name": "x", "type": "image", "element_type": "float32", "layout": "NCHW"}
    outputs = [{"name": "logits", "type": "mask"}]
    outputs[0]["steps"] = [{"argmax": {"axis": 1}}, {"mask": {"resize": "nearest"}}]  # type: ignore[assignment]
    return _manifest(folder, "semantic-segmentation", graph, [{**image, "steps": steps}], outputs)


def write_sum_model(folder: Path) -> Path:
    """Write a model of no task of ours, the sum of two inputs of 3 numbers; return its manifest."""
    nodes = [helper.make_node("Add", ["a", "b"], ["logits"])]
    graph = folder / "model.onnx"
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 3]) for name in "ab"]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [None, 3])
    made = helper.make_graph(nodes, "made", values, [output])
    _write(made, graph)
    inputs = [
        {"name": name, "type": "tensor", "element_type": "float32", "shape": ["batch", 3]}
        for name in "ab"
    ]
    return _manifest(folder, "adding", graph, inputs, [{"name": "logits", "type": "tensor"}])


def write_sound_model(folder: Path) -> Path:
    """Write a model of the mean of a sound's samples; return its manifest."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["logits"], axes=[1], keepdims=1)]
    graph = _save(folder, nodes, ("x", TensorProto.FLOAT, [None, None]), [None, 1], {})
    inputs = [{"name": "x", "type": "audio", "element_type": "float32", "sample_rate": 8000}]
    return _manifest(folder, "loudness", graph, inputs, [{"name": "logits", "type": "tensor"}])


def _save(folder: Path, nodes: Any, taken: Any, given: Any, weights: Any) -> Path:
    name, kind, shape = taken
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info(name, kind, shape)],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, given)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    _write(graph, folder / "model.onnx")
    return folder / "model.onnx"


def _write(graph: Any, path: Path) -> None:
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))


def _manifest(folder: Path, task: str, graph: Path, inputs: Any, outputs: Any) -> Path:
    model = {"framework": "onnxruntime", "graph": graph.name, "sha256": sha256(graph.read_bytes())}
    content = {"name": "made", "version": "1.0.0", "task": task, "models": [model]}
    path = folder / "made.yaml"
    path.write_text(json.dumps({**content, "inputs": inputs, "outputs": outputs}))
    return path
