"""A decoder with a growing past, drawn by a seed: one layer of attention, as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

VOCABULARY = 32
WIDTH = 16
PASTS = {"past_key_0": "present_key_0", "past_value_0": "present_value_0"}
"""The inputs that are empty at first, by the outputs that they are taken from."""


def write_decoder(path: Path, seed: int = 1, width: int = WIDTH, layers: int = 1) -> Path:
    """Write a decoder: input_ids, position_ids, attention_mask and pasts to logits and presents.

    A past is [batch, length, width] of keys or of values. Attention is causal within a prompt.
    """
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def weight(name: str, *shape: int, scale: float = 1.0) -> str:
        array = (scale * rng.standard_normal(shape)).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
        return name

    def constant(name: str, value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(value, name))
        return name

    def add(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    small = 1 / np.sqrt(width)
    hidden = add("Gather", [weight("embedding", VOCABULARY, width), "input_ids"], "embedded")
    places = add("Gather", [weight("places", 512, width), "position_ids"], "placed")
    hidden = add("Add", [hidden, places], "hidden")
    # A place sees those up to its own: columns [0, total) against rows given by position_ids.
    shape = add("Shape", ["attention_mask"], "mask_shape")
    total = add("Gather", [shape, constant("one", np.array(1, np.int64))], "total")
    zero = constant("zero", np.array(0, np.int64))
    columns = add("Range", [zero, total, "one"], "columns")
    rows = add("Unsqueeze", ["position_ids", constant("last", np.array([2], np.int64))], "rows")
    later = add("Greater", [columns, rows], "later")
    masked = constant("masked", np.array(-1e9, np.float32))
    bias = add("Where", [later, masked, constant("seen", np.array(0, np.float32))], "bias")
    inputs, outputs = [], []
    for layer in range(layers):
        parts = {}
        for part in ("query", "key", "value"):
            name = weight(f"w_{part}_{layer}", width, width, scale=small)
            parts[part] = add("MatMul", [hidden, name], f"{part}_{layer}")
        for part in ("key", "value"):
            past, present = f"past_{part}_{layer}", f"present_{part}_{layer}"
            parts[part] = add("Concat", [past, parts[part]], present, axis=1)
            inputs.append(_value(past, ["batch", f"past_{layer}", width]))
            outputs.append(_value(present, ["batch", f"total_{layer}", width]))
        keys = add("Transpose", [parts["key"]], f"keys_{layer}", perm=[0, 2, 1])
        scores = add("MatMul", [parts["query"], keys], f"scores_{layer}")
        shares = add("Softmax", [add("Add", [scores, bias], f"biased_{layer}")], f"shares_{layer}")
        mixed = add("MatMul", [shares, parts["value"]], f"mixed_{layer}")
        hidden = add("Add", [hidden, mixed], f"hidden_{layer}")
    add("MatMul", [hidden, weight("head", width, VOCABULARY)], "logits")
    ids = [
        _value("input_ids", ["batch", "tokens"], TensorProto.INT64),
        _value("attention_mask", ["batch", "seen"], TensorProto.INT64),
        _value("position_ids", ["batch", "tokens"], TensorProto.INT64),
    ]
    logits = _value("logits", ["batch", "tokens", VOCABULARY])
    graph = helper.make_graph(nodes, "decoder", [*ids, *inputs], [logits, *outputs], weights)
    opset = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def expected_tokens(path: Path, prompt: list[int], limit: int) -> tuple[list[int], list[float]]:
    """Return the greedy tokens of a decoder, which sees all tokens anew each time, and their logs.

    These are the logarithms of their shares of the softmax.
    """
    session = onnxruntime.InferenceSession(str(path))
    empty = {name: np.zeros((1, 0, WIDTH), np.float32) for name in PASTS}
    ids = list(prompt)
    logarithms = []
    for _ in range(limit):
        count = len(ids)
        arrays = {
            "input_ids": np.array([ids]),
            "attention_mask": np.ones((1, count), np.int64),
            "position_ids": np.arange(count)[None],
        }
        (logits,) = session.run(["logits"], {**arrays, **empty})
        row = logits[0, -1].astype(np.float64)
        shares = np.exp(row - row.max())
        ids.append(int(row.argmax()))
        logarithms.append(float(np.log(shares[ids[-1]] / shares.sum())))
    return ids[len(prompt) :], logarithms


def _value(name: str, shape: list[str | int], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)
