"""ONNX models that tests put together node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str | None]


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> onnx.ModelProto:
    """Return a model of floats; the shapes of its outputs are left open."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [_floats(name, shape) for name, shape in inputs.items()],
        [_floats(name, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def save_model(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def _floats(name: str, shape: Shape | None) -> onnx.ValueInfoProto:
    sizes = None if shape is None else list(shape)
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
