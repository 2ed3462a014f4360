"""An ONNX model with weights of every kind, and the bundle of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.explain.repro.bundle import Bundle, BundleSide, Expectation
from tests.support.project import ROOT

__all__ = ["SECRET", "bundle_of", "varied_model"]

SECRET = "patients"
"""A word in each name and each text of the model."""

SIDE = BundleSide("onnxruntime-1.32.0", "onnxruntime", "3.11.7", ("onnxruntime==1.32.0",))
EXPECTED = Expectation("outputs", "agreement", "REGRESSED", "outputs differ")

Arrays = Mapping[str, NDArray[Any]]


def _name(text: str) -> str:
    return f"{SECRET}.{text}"


def _weights(random: np.random.Generator) -> Arrays:
    """Return the weights of the model."""
    kernel = random.normal(0.02, 0.3, (16, 3, 3, 3)).astype(np.float32)
    kernel[random.random(kernel.shape) < 0.4] = 0
    return {
        "kernel": kernel,
        "scale": random.uniform(0.5, 2, 16).astype(np.float32),
        "shift": random.normal(0, 1, 16).astype(np.float32),
        "mean": random.normal(0, 1, 16).astype(np.float32),
        "variance": random.gamma(2, 1, 16).astype(np.float32) + np.float32(0.01),
        "quantized": random.integers(-100, 100, (8, 8), np.int8),
        "quantized_scale": random.uniform(0.01, 0.1, 8).astype(np.float32),
        "quantized_zero": random.integers(-5, 5, 8, np.int8),
        "sizes": np.array([1, 1, 2, 2], np.float32),
        "shape": np.array([0, -1, 8], np.int64),
        "half": random.normal(0, 1, (8, 4)).astype(np.float16),
        "order": random.permutation(4).astype(np.int64),
    }


def _node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Return a node; names of tensors are separated by spaces."""
    reads, writes = (list(map(_name, words.split())) for words in (inputs, outputs))
    node = helper.make_node(kind, reads, writes, _name(f"node of {outputs}"), **attributes)
    node.doc_string = SECRET
    return node


def _constant(values: NDArray[Any], output: str) -> onnx.NodeProto:
    return _node("Constant", "", output, value=numpy_helper.from_array(values, SECRET))


def _branch(factor: float) -> onnx.GraphProto:
    """Return the branch of an If that reads a tensor of the graph around it."""
    factors = np.full(4, factor, np.float32) + np.arange(4, dtype=np.float32)
    nodes = [_constant(factors, "factors"), _node("Mul", "picked factors", "chosen")]
    output = helper.make_tensor_value_info(_name("chosen"), TensorProto.FLOAT, [None, None, 4])
    return helper.make_graph(nodes, SECRET, [], [output])


def varied_model(seed: int = 0) -> onnx.ModelProto:
    """Return a model of pictures of 3 x 6 x 6: convolution, quantization, a branch, constants."""
    random = np.random.default_rng(seed)
    bias = random.normal(3, 1, 8).astype(np.float32)
    nodes = [
        _node("Conv", "picture kernel", "convolved"),
        _node("BatchNormalization", "convolved scale shift mean variance", "normal"),
        _node("Resize", "normal none sizes", "resized", mode="nearest"),
        _node("Reshape", "resized shape", "rows"),
        _node("DequantizeLinear", "quantized quantized_scale quantized_zero", "matrix", axis=1),
        _node("MatMul", "rows matrix", "product"),
        _constant(bias, "bias"),
        _node("Add", "product bias", "shifted"),
        _node("Cast", "half", "single", to=TensorProto.FLOAT),
        _node("MatMul", "shifted single", "small"),
        _node("Gather", "small order", "picked", axis=2),
        _node("Constant", "", "yes", value_float=1.0),
        _node("Cast", "yes", "which", to=TensorProto.BOOL),
        _node("If", "which", "answer", then_branch=_branch(2), else_branch=_branch(3)),
    ]
    nodes[2].input[1] = ""
    picture = helper.make_tensor_value_info(
        _name("picture"), TensorProto.FLOAT, [_name("batch"), 3, 6, 6]
    )
    picture.doc_string = SECRET
    answer = helper.make_tensor_value_info(_name("answer"), TensorProto.FLOAT, [None, None, 4])
    weights = [numpy_helper.from_array(a, _name(n)) for n, a in _weights(random).items()]
    graph = helper.make_graph(nodes, SECRET, [picture], [answer], weights, doc_string=SECRET)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], producer_name=SECRET, ir_version=8
    )
    helper.set_model_props(model, {SECRET: SECRET})
    return model


def bundle_of(path: Path, inputs: Arrays | None = None) -> Bundle:
    """Return the bundle of an ONNX file."""
    picture = np.random.default_rng(9).normal(5, 2, (2, 3, 6, 6)).astype(np.float32)
    return Bundle(
        title="varied",
        predictor=ROOT / "predictors" / "onnxruntime.py",
        files={"graph": path},
        device="cpu",
        threads=1,
        options={},
        inputs={_name("picture"): picture} if inputs is None else inputs,
        old=SIDE,
        new=SIDE,
        expected=EXPECTED,
    )
