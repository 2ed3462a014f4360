"""A model with a state, tokens of int64 and an input without a batch, from the file to verdicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.project import Project, sha256

PREDICTOR = """
import numpy
from mlms_predictors import Loaded, Tensor

def versions():
    return {"adder": "1.0"}

def devices():
    return ["cpu"]

def load(request):
    inputs = [
        Tensor("x", "float32", (None, 3)),
        Tensor("ids", "int64", (None, None)),
        Tensor("rate", "int64", ()),
        Tensor("state", "float32", (1, None, 3)),
    ]
    outputs = [Tensor("y", "float32", (None, 3)), Tensor("stateN", "float32", (1, None, 3))]
    return Loaded(None, "cpu", request.threads, inputs, outputs)

def predict(loaded, arrays):
    state = arrays["state"] + arrays["x"]
    bias = arrays["ids"].sum(axis=1, keepdims=True) * arrays["rate"]
    return [(state[0] + bias).astype("float32"), state]
"""

MANIFEST = """\
name: adder
version: 1.0.0
task: image-classification
models:
  - {{framework: onnxruntime, graph: m.onnx, sha256: {model}}}
  - {{framework: adder, graph: m.onnx, sha256: {model}}}
inputs:
  - {{name: x, type: tensor, element_type: float32}}
  - {{name: ids, type: tensor, element_type: int64}}
  - {{name: rate, type: tensor, element_type: int64, shape: []}}
  - {{name: state, type: tensor, element_type: float32, shape: [1, batch, 3], from_output: stateN}}
outputs:
  - {{name: y, type: classification}}
dataset: {{name: d, version: 1.0.0, source: d.npz, sha256: {data}}}
evaluate: {{batch_sizes: [1, 4]}}
thresholds:
  top1: {{min: 0.9}}
  agreement: {{reference: adder}}
"""


def adding_model() -> bytes:
    """Return a model whose y and stateN are state + x, y also with the tokens times the rate."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "first"], ["row"]),
        helper.make_node("Add", ["state", "row"], ["stateN"]),
        helper.make_node("Squeeze", ["stateN", "first"], ["sum"]),
        helper.make_node("ReduceSum", ["ids", "second"], ["tokens"], keepdims=1),
        helper.make_node("Mul", ["tokens", "rate"], ["whole"]),
        helper.make_node("Cast", ["whole"], ["bias"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["sum", "bias"], ["y"]),
    ]
    forms: list[tuple[str, int, list[Any]]] = [
        ("x", TensorProto.FLOAT, ["n", 3]),
        ("ids", TensorProto.INT64, ["n", "length"]),
        ("rate", TensorProto.INT64, []),
        ("state", TensorProto.FLOAT, [1, "n", 3]),
        ("y", TensorProto.FLOAT, ["n", 3]),
        ("stateN", TensorProto.FLOAT, [1, "n", 3]),
    ]
    values = [helper.make_tensor_value_info(*form) for form in forms]
    axes = [
        numpy_helper.from_array(np.array([0]), "first"),
        numpy_helper.from_array(np.array([1]), "second"),
    ]
    graph = helper.make_graph(nodes, "adder", values[:4], values[4:], axes)
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def write_dataset(project: Project) -> None:
    """Write six sequences of ten elements; the label is the largest of the sums so far."""
    random = np.random.default_rng(0)
    x = random.standard_normal((60, 3)).astype(np.float32)
    sums = x.reshape(6, 10, 3).cumsum(axis=1).reshape(60, 3)
    np.savez(
        project.folder / "d.npz",
        x=x,
        ids=random.integers(0, 9, (60, 5)),
        rate=np.full(60, 16),
        sequence=np.repeat(np.arange(6), 10),
        label=sums.argmax(axis=1),
    )


@pytest.mark.slow
def test_a_model_with_a_state_has_accuracy_agreement_and_performance(project: Project) -> None:
    folder = project.path / "predictors"
    folder.mkdir()
    (folder / "adder.py").write_text(PREDICTOR)
    project.drop()
    model = adding_model()
    (project.folder / "m.onnx").write_bytes(model)
    write_dataset(project)
    data = sha256((project.folder / "d.npz").read_bytes())
    text = MANIFEST.format(model=sha256(model), data=data)
    (project.folder / "m.yaml").write_text(text)
    project.run(f"--mlms-predictors={folder}")
    items = project.items()
    kinds = sorted(item["kind"] for item in items)
    assert kinds == ["accuracy", "agreement", "performance", "performance"]
    assert {item["verdict"] for item in items} == {"PASSED"}
    for item in items:
        if item["kind"] == "accuracy":
            assert item["estimates"]["top1"]["value"] == 1
            assert item["batch_size"] == 1
