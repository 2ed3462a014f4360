"""Small ONNX networks that hypothesis draws, with all that a graph may have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = NDArray[Any]

ROWS = 3
WIDTH = 4
_FLOAT = TensorProto.FLOAT


@st.composite
def drawn_models(draw: st.DrawFn) -> onnx.ModelProto:
    """Return a model of up to 8 nodes over tensors of 3 x 4 floats."""
    nodes: list[onnx.NodeProto] = []
    tensors = ["x", "w", "c"]
    value = numpy_helper.from_array(_numbers(2))
    nodes.append(helper.make_node("Constant", [], ["c"], value=value))
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(_KINDS))
        first = draw(st.sampled_from(tensors))
        second = draw(st.sampled_from(tensors))
        node = _node(kind, first, second, number)
        nodes.append(node)
        tensors.append(node.output[0])
    last = draw(st.sampled_from(tensors[3:]))
    x = helper.make_tensor_value_info("x", _FLOAT, ["N", WIDTH])
    y = helper.make_tensor_value_info(last, _FLOAT, [None, WIDTH])
    weight = numpy_helper.from_array(_numbers(1), "w")
    low = numpy_helper.from_array(np.array(0.25, np.float32), "low")
    row = numpy_helper.from_array(np.ones(WIDTH, np.float32), "row")
    condition = numpy_helper.from_array(np.array(True), "condition")
    weights = [weight, low, row, condition]
    graph = helper.make_graph(nodes, "graph", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


_KINDS = ("Relu", "Add", "Mul", "Clip", "If", "LayerNormalization", "Identity")


def _node(kind: str, first: str, second: str, number: int) -> onnx.NodeProto:
    result = f"t{number}"
    if kind == "Clip":  # without a lower bound
        return helper.make_node(kind, [first, "", "low"], [result], name=f"clip {number}")
    if kind == "If":
        return _choice(first, second, number)
    if kind == "LayerNormalization":  # a second output is not used
        outputs = [result, f"unused{number}"]
        return helper.make_node(kind, [first, "row"], outputs, axis=-1)
    inputs = [first, second] if kind in ("Add", "Mul") else [first]
    return helper.make_node(kind, inputs, [result])


def _choice(first: str, second: str, number: int) -> onnx.NodeProto:
    """Return an If whose branches read tensors of the graph around it."""
    bodies = {}
    for branch, name in (("then_branch", first), ("else_branch", second)):
        result = f"{branch}{number}"
        inner = helper.make_node("Neg", [name], [result])
        output = helper.make_tensor_value_info(result, _FLOAT, [None, WIDTH])
        bodies[branch] = helper.make_graph([inner], branch, [], [output])
    return helper.make_node("If", ["condition"], [f"t{number}"], **bodies)


def _numbers(seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=(ROWS, WIDTH)).astype(np.float32)


def save_model(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def run_all(model: onnx.ModelProto) -> dict[str, Array]:
    """Return all tensors that nodes compute, and the input, by onnx's own evaluator."""
    names = [name for node in model.graph.node for name in node.output if name]
    inputs = {"x": _numbers(0)}
    values = dict(zip(names, ReferenceEvaluator(model).run(names, inputs), strict=True))
    return {**values, **inputs}
