"""What a model costs by its structure, without running it: parameters, operations and bytes, by layer and in all.

Shapes are onnx's own inference. A multiplication with its addition is two operations, and only those of convolutions
and matrix products are counted, as torch.utils.flop_counter does: the rest is bound by memory, not by arithmetic. What
can't be told, such as the operations of a recurrent layer, is None, and sums are then of what is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_mlms.errors import MlmsError

__all__ = ["Described", "LayerCost", "describe_onnx"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerCost:
    """One node: ``type`` is ONNX's, ``shape`` that of its first output, bytes what it must read and write at least."""

    name: str
    type: str
    shape: Shape | None
    parameters: int
    flops: int | None
    weight_bytes: int
    input_bytes: int | None
    output_bytes: int | None


@dataclass(frozen=True)
class Described:
    """A model at one batch size.

    ``peak_bytes`` is the most that activations hold at once, in the order of the file, if each is freed after its last
    use and none is overwritten in place. ``unknown`` are the types of layers whose operations or shapes can't be told.
    """

    batch_size: int
    layers: tuple[LayerCost, ...]
    peak_bytes: int | None

    @property
    def parameters(self) -> int:
        """The weights' elements, each once."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def weight_bytes(self) -> int:
        """The weights' bytes, each once."""
        return sum(layer.weight_bytes for layer in self.layers)

    @property
    def flops(self) -> int:
        """The operations of the layers that can be told."""
        return sum(layer.flops or 0 for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        """The bytes of all outputs of layers that can be told."""
        return sum(layer.output_bytes or 0 for layer in self.layers)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The types of what can't be told."""
        return tuple(sorted({x.type for x in self.layers if x.flops is None or x.output_bytes is None}))


def describe_onnx(path: Path, batch_size: int = 1, axes: Mapping[str, int] | None = None) -> Described:
    """Describe an ONNX file; ``axes`` are the sizes of free axes by name, the first axis of an input is the batch.

    Raises MlmsError for what is no model, or has another free axis.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise MlmsError("describing a model needs onnx; pip install 'pytest-mlms[onnx]'") from error
    try:
        model = onnx.load(str(path), load_external_data=False)
        if not model.graph.node:
            raise ValueError("it is no ONNX model, or one without nodes")
        _bind(model.graph, batch_size, axes or {})
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (DecodeError, OSError, ValueError, onnx.shape_inference.InferenceError) as error:
        raise MlmsError(f"{path} can't be described: {error}") from error
    graph = _Graph(model.graph)
    return Described(batch_size, tuple(graph.layers()), graph.peak())


def _bind(graph: Any, batch_size: int, axes: Mapping[str, int]) -> None:
    """Give the free axes of the inputs their sizes, and forget the shapes that were written down without them."""
    weights = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        for index, axis in enumerate(value.type.tensor_type.shape.dim if value.name not in weights else ()):
            if axis.WhichOneof("value") == "dim_value" and axis.dim_value > 0:
                continue
            size = axes.get(axis.dim_param, batch_size if index == 0 else None)
            if size is None:
                name = axis.dim_param or "?"
                raise ValueError(f"axis {index} ({name}) of input {value.name!r} is free; say --axis {name}=SIZE")
            axis.dim_value = size
    del graph.value_info[:]
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")


class _Graph:
    """The shapes and bytes of a graph's tensors by name."""

    def __init__(self, graph: Any) -> None:
        self._nodes = [node for node in graph.node if node.op_type != "Constant"]
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._inputs = [value.name for value in graph.input if value.name not in self._weights]
        self._outputs = {value.name for value in graph.output}
        self._forms: dict[str, tuple[Shape | None, int]] = {
            name: (tuple(tensor.dims), _item_bytes(tensor.data_type)) for name, tensor in self._weights.items()
        }
        for value in (*graph.input, *graph.value_info, *graph.output):
            self._forms.setdefault(value.name, _form(value.type.tensor_type))

    def shape(self, name: str) -> Shape | None:
        """Return a tensor's shape, None where it can't be told."""
        return self._forms.get(name, (None, 0))[0]

    def size(self, names: Iterable[str]) -> int | None:
        """Return the bytes of some tensors, None where one can't be told."""
        found = [(self.shape(name), self._forms.get(name, (None, 0))[1]) for name in names]
        if any(shape is None or not item for shape, item in found):
            return None
        return sum(math.prod(shape) * item for shape, item in found if shape is not None)

    def layers(self) -> Iterable[LayerCost]:
        """Yield each node's cost; a weight counts where it is used first."""
        seen: set[str] = set()
        for node in self._nodes:
            own = [name for name in dict.fromkeys(node.input) if name in self._weights and name not in seen]
            seen.update(own)
            learned = [name for name in own if self._weights[name].data_type in _LEARNED]
            fed = [name for name in dict.fromkeys(node.input) if name and name not in self._weights]
            yield LayerCost(
                node.name or node.output[0],
                node.op_type,
                self.shape(node.output[0]),
                sum(math.prod(self._weights[name].dims) for name in learned),
                self._flops(node),
                self.size(own) or 0,
                self.size(fed),
                self.size(filter(None, node.output)),
            )

    def peak(self) -> int | None:
        """Return the most bytes of activations that are needed at once."""
        last = {name: index for index, node in enumerate(self._nodes) for name in node.input}
        alive, most = dict.fromkeys(self._inputs), 0
        for index, node in enumerate(self._nodes):
            alive.update(dict.fromkeys(filter(None, node.output)))
            now = self.size(alive)
            if now is None:
                return None
            most = max(most, now)
            alive = {name: None for name in alive if last.get(name, -1) > index or name in self._outputs}
        return most

    def _flops(self, node: Any) -> int | None:
        if node.op_type in _UNCOUNTED or node.domain not in ("", "ai.onnx"):
            return None
        count = _COUNTS.get(node.op_type)
        if count is None:
            return 0
        shapes = [self.shape(name) for name in (*node.input[:2], node.output[0])]
        if any(shape is None for shape in shapes):
            return None
        attributes = {attribute.name: attribute for attribute in node.attribute}
        return count([shape for shape in shapes if shape is not None], attributes)


def _form(tensor: Any) -> tuple[Shape | None, int]:
    axes = tensor.shape.dim
    known = tensor.HasField("shape") and all(axis.WhichOneof("value") == "dim_value" for axis in axes)
    return (tuple(axis.dim_value for axis in axes) if known else None), _item_bytes(tensor.elem_type)


def _item_bytes(kind: int) -> int:
    import onnx

    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)
    except (KeyError, TypeError, ValueError):  # text, or none at all
        return 0


def _convolution(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> int:
    """Each output is a sum over a kernel and the inputs of its group; the kernel is outputs x inputs / group x …."""
    _, kernel, output = shapes
    return 2 * math.prod(output) * math.prod(kernel[1:])


def _transposed_convolution(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> int:
    """Each input is spread over a kernel and the outputs of its group; the kernel is inputs x outputs / group x …."""
    source, kernel, _ = shapes
    return 2 * math.prod(source) * math.prod(kernel[1:])


def _gemm(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> int:
    left, _, output = shapes
    turned = "transA" in attributes and attributes["transA"].i
    return 2 * math.prod(output) * left[0 if turned else 1]


def _product(shapes: Sequence[Shape], attributes: Mapping[str, Any]) -> int:
    left, _, output = shapes
    return 2 * math.prod(output) * left[-1]


_COUNTS: dict[str, Callable[[Sequence[Shape], Mapping[str, Any]], int]] = {
    "Conv": _convolution,
    "ConvInteger": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _product,
    "MatMulInteger": _product,
}
_UNCOUNTED = {"Attention", "Einsum", "GRU", "If", "LSTM", "Loop", "QLinearConv", "QLinearMatMul", "RNN", "Scan"}
_LEARNED = {1, 2, 3, 10, 11, 16, *range(17, 24)}  # TensorProto: floats, and 8 bits or fewer; not shapes and indices
