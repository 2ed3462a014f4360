"""The operations of ONNX nodes, by the shapes of what they read and write.

A multiplication with its addition counts as two operations. Only convolutions and matrix products
count, also inside of recurrent layers and of attention. The operators are those of
https://onnx.ai/onnx/operators/ and of ONNX Runtime (docs/ContribOperators.md in its repository).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mlms_predictors import Tensor
from mlms_predictors._run.products import (
    contraction,
    convolution,
    count,
    matrix_products,
    transposed_convolution,
)

from pytest_mlms.measure.structure.cost import Shape, known_shape

_Formula = Callable[["_Node"], int]


class _Unknown(Exception):
    """A formula lacks a shape."""


class _Node:
    """A node with its attributes, and the shapes of its tensors."""

    def __init__(self, proto: Any, tensors: Mapping[str, Tensor]) -> None:
        self._proto = proto
        self._tensors = tensors
        self.attributes = {attribute.name: attribute for attribute in proto.attribute}

    def input(self, index: int) -> Shape:
        """Return the shape of an input; raises _Unknown where it isn't fully known."""
        if not self.has_input(index):
            raise _Unknown
        return self._shape(self._proto.input[index])

    def has_input(self, index: int) -> bool:
        """Return whether an input is given; optional ones have an empty name."""
        return index < len(self._proto.input) and bool(self._proto.input[index])

    def inputs(self) -> list[Shape]:
        """Return the shapes of all inputs."""
        return [self._shape(name) for name in self._proto.input]

    def output(self) -> Shape:
        """Return the shape of the first output."""
        return self._shape(self._proto.output[0])

    def number(self, name: str) -> int:
        """Return an attribute that is a whole number; raises _Unknown where it isn't set."""
        if name not in self.attributes:
            raise _Unknown
        return int(self.attributes[name].i)

    def _shape(self, name: str) -> Shape:
        shape = known_shape(self._tensors.get(name))
        if shape is None:
            raise _Unknown
        return shape


def operations_of(proto: Any, tensors: Mapping[str, Tensor]) -> int | None:
    """Return the operations of a node; None where they are unknown."""
    formulas = _FORMULAS.get(proto.domain, {})
    formula = formulas.get(proto.op_type)
    if formula is None:
        return count(proto.op_type, {}, []) if formulas is _STANDARD else None
    try:
        return formula(_Node(proto, tensors))
    except _Unknown:
        return None


def subgraphs(proto: Any) -> Iterator[Any]:
    """Yield the graphs inside of a node: the branches of an If, the body of a Loop or a Scan."""
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _of_shapes(formula: Callable[[Shape, Shape, Shape], int], second: int = 1) -> _Formula:
    """Return a formula of the first input, the second operand and the output."""

    def operations(node: _Node) -> int:
        return formula(node.input(0), node.input(second), node.output())

    return operations


def _recurrent(node: _Node) -> int:
    """Count LSTM, GRU and RNN: both weights, of all gates and directions, for each step.

    The input is steps x batch x features, or batch x steps x features.
    """
    steps = math.prod(node.input(0)[:2])
    weights = math.prod(node.input(1)) + math.prod(node.input(2))
    return 2 * steps * weights


def _einsum(node: _Node) -> int:
    """Count an Einsum of two operands: each output is a sum over the axes that it doesn't have."""
    equation = node.attributes["equation"].s.decode().replace(" ", "")
    terms, arrow, result = equation.partition("->")
    labels = terms.split(",")
    shapes = node.inputs()
    if len(labels) != 2:
        if len(labels) == 1:
            return 0
        raise _Unknown
    sizes: dict[str, int] = {}
    for term, shape in zip(labels, shapes, strict=True):
        sizes.update(_sizes_of_labels(term, shape))
    if not arrow:
        letters = terms.replace(",", "")
        result = "".join(letter for letter in sizes if letters.count(letter) == 1)
    summed = [size for label, size in sizes.items() if label not in result]
    if not summed:
        return 0
    return 2 * math.prod(node.output()) * math.prod(summed)


def _sizes_of_labels(term: str, shape: Shape) -> dict[str, int]:
    """Return the size of each label of an operand; those that ... stands for have none."""
    before, _, after = term.partition("...")
    sizes = dict(zip(before, shape, strict=False))
    if after:
        sizes.update(zip(after, shape[-len(after) :], strict=True))
    return sizes


def _product_of_blocks(node: _Node) -> int:
    """Count MatMulNBits: its weight, quantized in blocks, stands for K x N."""
    return 2 * math.prod(node.input(0)) * node.number("N")


def _attention(node: _Node) -> int:
    """Count Attention of ONNX: queries by keys, and the result by values.

    Tensors are batch x heads x steps x size, or batch x steps x (heads * size).
    """
    queries = node.input(0)
    keys = node.input(1)
    values = node.input(2)
    past = node.input(4)[2] if node.has_input(4) else 0
    if len(queries) == 4:
        batch, heads, steps, size = queries
        known = keys[2] + past
        value_size = values[3]
    else:
        batch, steps, width = queries
        heads = node.number("q_num_heads")
        size = width // heads
        known = keys[1] + past
        value_size = values[2] // node.number("kv_num_heads")
    return 2 * batch * heads * steps * known * (size + value_size)


def _fused_attention(node: _Node) -> int:
    """Count Attention of ONNX Runtime, which also makes queries, keys and values by one weight."""
    batch, steps, _ = node.input(0)
    weight = node.input(1)
    past = node.input(4)[3] if node.has_input(4) else 0
    value_width = node.output()[2]
    key_width = (weight[1] - value_width) // 2
    made = 2 * batch * steps * math.prod(weight)
    return made + 2 * batch * steps * (steps + past) * (key_width + value_width)


def _multi_head_attention(node: _Node) -> int:
    """Count MultiHeadAttention of ONNX Runtime on separate queries, keys and values."""
    queries = node.input(0)
    keys = node.input(1)
    values = node.input(2)
    if not len(queries) == len(keys) == len(values) == 3 or node.has_input(6):
        raise _Unknown  # packed, or with what earlier steps left
    batch, steps, width = queries
    return 2 * batch * steps * keys[1] * (width + values[2])


_STANDARD: dict[str, _Formula] = {
    "Attention": _attention,
    "Conv": _of_shapes(convolution),
    "ConvInteger": _of_shapes(convolution),
    "ConvTranspose": _of_shapes(transposed_convolution),
    "Einsum": _einsum,
    "GRU": _recurrent,
    "Gemm": _of_shapes(contraction),
    "LSTM": _recurrent,
    "MatMul": _of_shapes(matrix_products),
    "MatMulInteger": _of_shapes(matrix_products),
    "QLinearConv": _of_shapes(convolution, second=3),
    "QLinearMatMul": _of_shapes(matrix_products, second=3),
    "RNN": _recurrent,
}
_ONNX_RUNTIME: dict[str, _Formula] = {
    "Attention": _fused_attention,
    "DynamicQuantizeMatMul": _of_shapes(matrix_products),
    "FusedConv": _of_shapes(convolution),
    "FusedGemm": _of_shapes(contraction),
    "FusedMatMul": _of_shapes(matrix_products),
    "MatMulIntegerToFloat": _of_shapes(matrix_products),
    "MatMulNBits": _product_of_blocks,
    "MultiHeadAttention": _multi_head_attention,
    "QGemm": _of_shapes(contraction, second=3),
}
_FORMULAS = {"": _STANDARD, "ai.onnx": _STANDARD, "com.microsoft": _ONNX_RUNTIME}
"""The formulas that count the operations of a node, by its domain and its type."""
