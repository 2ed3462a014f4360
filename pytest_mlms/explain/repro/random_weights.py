"""A bundle without its model: the structure of an ONNX model, with random weights and inputs.

The weights have the distributions of the model's own, and tell none of their values but the
extremes. Everything that decides what is computed, and how, stays: operators and their attributes,
shapes, types, quantization, indices and axes."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro.bundle import Bundle
from pytest_mlms.explain.repro.privacy import graphs_of, rename, strip_texts
from pytest_mlms.provide.artifacts.external_data import is_onnx

_CHUNK = 1 << 20  # numbers that are drawn at a time
_FAR = 4.0
"""Standard deviations from the mean, beyond which an extreme cuts off nothing that counts."""


class _Moments(NamedTuple):
    """The moments and the extremes of some numbers, and the share of zeros among all."""

    mean: float
    deviation: float
    low: float
    high: float
    zeros: float


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is one of real numbers, also one of ml_dtypes, such as bfloat16."""
    return "float" in dtype.name


def like_weights(array: Array, random: np.random.Generator) -> Array:
    """Return random numbers of an array's shape and type.

    They have its mean and standard deviation, lie within its least and its largest number, and as
    large a share of them is 0. Numbers that aren't finite keep their places. An array that is 0 and
    one other number, such as a mask, has no distribution and is returned as it is.
    """
    values = array.astype(np.float64).ravel()
    finite = np.isfinite(values)
    moments = _moments_of(values[finite])
    if moments is None:
        return array
    drawn = np.empty(values.size, array.dtype)
    for begin in range(0, values.size, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        numbers = _draw(moments, values[part].size, random)
        drawn[part] = np.where(finite[part], numbers, values[part]).astype(array.dtype)
    return drawn.reshape(array.shape)


def _moments_of(values: Array) -> _Moments | None:
    """Return the moments of the numbers that aren't 0; None where these are all alike."""
    others = values[values != 0]
    if others.size == 0 or others.min() == others.max():
        return None
    return _Moments(
        mean=float(others.mean()),
        deviation=float(others.std()),
        low=float(others.min()),
        high=float(others.max()),
        zeros=1 - others.size / values.size,
    )


def _draw(moments: _Moments, count: int, random: np.random.Generator) -> Array:
    """Return numbers of these moments, within the extremes, of which some are 0."""
    mean, deviation, low, high, zeros = moments
    if min(mean - low, high - mean) >= _FAR * deviation:
        numbers = random.normal(mean, deviation, count)
    else:
        numbers = low + (high - low) * _draw_beta(moments, count, random)
    numbers = numbers.clip(low, high)
    if zeros:
        numbers[random.random(count) < zeros] = 0
    return numbers


def _draw_beta(moments: _Moments, count: int, random: np.random.Generator) -> Array:
    """Return numbers from 0 to 1 of the beta distribution of these moments.

    There is one for any mean and deviation of numbers in a range. Its parameters follow from the
    method of moments (Johnson, Kotz and Balakrishnan 1995, Continuous Univariate Distributions 2,
    chapter 25).
    """
    width = moments.high - moments.low
    mean = (moments.mean - moments.low) / width
    variance = (moments.deviation / width) ** 2
    both = mean * (1 - mean) / variance - 1
    if not math.isfinite(both) or both * min(mean, 1 - mean) < 1e-3:  # nearly all are extremes
        return (random.random(count) < mean).astype(np.float64)
    return random.beta(mean * both, (1 - mean) * both, count)


def like_histogram(array: Array, random: np.random.Generator) -> Array:
    """Return whole numbers that are drawn from those of an array, as often as they are there."""
    return random.choice(array.ravel(), array.shape)


def like_input(array: Array, random: np.random.Generator) -> Array:
    """Return random values like those of an input, which are no texts.

    Real numbers are drawn as weights are, whole numbers from the range of the others, and truth
    values as often as they are true.
    """
    kind = array.dtype.kind
    if is_float(array.dtype):
        return like_weights(array, random)
    if kind in "iu" and array.size:
        return random.integers(array.min(), array.max(), array.shape, array.dtype, endpoint=True)
    if kind == "b" and array.size:
        truths: Array = random.random(array.shape) < array.mean()
        return truths
    return array


NOTE = "The weights and the inputs are random, of the same distributions as the model's own."

_GRAPH = "model.onnx"
_DATA = "model.data"
_LARGE = 1_900_000_000  # bytes; a message of protobuf ends at 2 GiB
_CLASSIC = "ai.onnx.ml"
"""The domain of classic models, whose weights are attributes."""

_CONSTANT = "Constant"
_TEXT = re.compile("string|stopwords")
"""Attributes of texts that are data; others say what is computed, such as nodes_modes."""

_OF_TEXTS = ("StringNormalizer", "TfIdfVectorizer")
"""Other operators whose attributes are texts."""

_QUANTIZED = (2, 3, 21, 22)  # UINT8, INT8, UINT4, INT4 of onnx.TensorProto
_OF_QUANTIZATION: dict[str, tuple[int, ...]] = {
    "QuantizeLinear": (1, 2),
    "DequantizeLinear": (1, 2),
    "ConvInteger": (2, 3),
    "MatMulInteger": (2, 3),
    "MatMulIntegerToFloat": (2, 3, 4, 5),
    "DynamicQuantizeMatMul": (2, 3),
    "MatMulNBits": (2, 3, 4),
    "MatMulBnb4": (2,),
    "GatherBlockQuantized": (2, 3),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QGemm": (1, 2, 4, 5, 7, 8),
    "QAttention": (3, 4, 6, 7),
}
"""Operator -> the inputs that say how to compute: scales, zero points, sizes."""

_OF_OTHER_QUANTIZED = (1, 2, 4, 5, 6, 7)
"""The same inputs of other operators QLinear…, such as QLinearAdd of ONNX Runtime."""


def randomised(bundle: Bundle, folder: Path, seed: int = 0, keep_names: bool = False) -> Bundle:
    """Write an ONNX model with random weights into a folder; return the bundle with it.

    Its inputs are random, too. The model has neither descriptions nor, without ``keep_names``,
    names. The same seed gives the same bundle. Raises MlmsError where the model is no ONNX file, or
    can't be read or written, and where outputs are held against a reference.
    """
    path = bundle.files.get("graph")
    if path is None or path.is_dir() or not is_onnx(bundle.framework, path):
        problem = f"the model of {bundle.framework} is no ONNX file"
        raise MlmsError(f"{problem}; --without-model takes an ONNX model")
    if bundle.reference:
        problem = "the reference's outputs are those of the model's own weights"
        raise MlmsError(f"{problem}; leave out --without-model")
    values = _RandomValues(np.random.default_rng(seed))
    model = _read(path)
    _replace_weights(model.graph, values)
    strip_texts(model)
    names: Mapping[str, str] = {} if keep_names else rename(model)
    inputs = {}
    for name, array in bundle.inputs.items():
        inputs[names.get(name, name)] = values.of_input(array)
    rules = {names.get(name, name): rule for name, rule in bundle.expected.rules.items()}
    return replace(
        bundle,
        expected=bundle.expected._replace(rules=rules),
        files={"graph": _write(model, folder)},
        inputs=inputs,
        notes=(*bundle.notes, NOTE),
    )


def _read(path: Path) -> Any:
    """Return a model with all of its weights, and without functions of its own."""
    import onnx
    from google.protobuf.message import DecodeError
    from onnx import inliner

    try:
        model = onnx.load(str(path))
        if model.functions:
            model = inliner.inline_local_functions(model)
    except (DecodeError, OSError, ValueError, onnx.checker.ValidationError) as error:
        raise MlmsError(f"{path} can't be read as an ONNX model: {error}") from None
    if not model.graph.node:
        raise MlmsError(f"{path} is no ONNX model, or one without nodes; name another one")
    return model


def _write(model: Any, folder: Path) -> Path:
    """Write a model, its weights in a file beside it if they are large; return its path."""
    import onnx

    path = folder / _GRAPH
    large = model.ByteSize() > _LARGE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(model, str(path), save_as_external_data=large, location=_DATA)
    except OSError as error:
        raise MlmsError(f"{path} can't be written: {error.strerror}; make room there") from None
    return path


class _RandomValues:
    """Random values in place of a bundle's own; equal texts become equal ones."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._texts: dict[Any, str] = {}

    def of_input(self, array: Array) -> Array:
        """Return values like those of an input."""
        if array.dtype.kind not in "OUST":
            return like_input(array, self._random)
        texts = [self._text(text) for text in array.ravel()]
        kind = str if array.dtype.kind == "U" else object  # frames carry no objects
        return np.array(texts, kind).reshape(array.shape)

    def replace_tensor(self, tensor: Any) -> None:
        """Replace the weights of a tensor; a number of its own is a part of the structure."""
        from onnx import numpy_helper

        if tensor.string_data:
            self._replace_texts(tensor.string_data)
            return
        array = numpy_helper.to_array(tensor)
        if array.size < 2:
            return
        if is_float(array.dtype):
            drawn = like_weights(array, self._random)
        elif tensor.data_type in _QUANTIZED:
            drawn = like_histogram(array, self._random)
        else:
            return
        tensor.CopyFrom(numpy_helper.from_array(drawn, tensor.name))

    def replace_attribute(self, attribute: Any) -> None:
        """Replace the weights and the texts that an attribute has; whole numbers stay."""
        if attribute.floats:
            values = np.array(attribute.floats, np.float32)
            attribute.floats[:] = like_weights(values, self._random).tolist()
        elif attribute.strings and _TEXT.search(attribute.name):
            self._replace_texts(attribute.strings)
        elif attribute.HasField("t") and attribute.t.data_type not in _QUANTIZED:
            self.replace_tensor(attribute.t)

    def _replace_texts(self, texts: Any) -> None:
        texts[:] = [self._text(text).encode() for text in texts]

    def _text(self, text: Any) -> str:
        known = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        return self._texts.setdefault(known, f"text {len(self._texts)}")


def _replace_weights(graph: Any, values: _RandomValues) -> None:
    """Replace the weights of a graph and of those inside of it."""
    graphs = list(graphs_of(graph))
    nodes = [node for each in graphs for node in each.node]
    kept = {name for node in nodes for name in _kept_inputs(node)}
    for each in graphs:
        for name, tensor in _tensors(each):
            if name not in kept:
                values.replace_tensor(tensor)
    for node in nodes:
        if _has_weights(node, kept):
            for attribute in node.attribute:
                values.replace_attribute(attribute)


def _tensors(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors that a graph keeps, by name: weights, sparse ones, and constants."""
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for sparse in graph.sparse_initializer:
        yield sparse.values.name, sparse.values
    for node in graph.node:
        if node.op_type != _CONSTANT:
            continue
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield node.output[0], attribute.t
            elif attribute.HasField("sparse_tensor"):
                yield node.output[0], attribute.sparse_tensor.values


def _has_weights(node: Any, kept: Collection[str]) -> bool:
    """Return whether attributes of a node are weights or texts, beside tensors of constants."""
    if node.op_type == _CONSTANT:
        return node.output[0] not in kept and not node.attribute[0].HasField("t")
    return node.domain == _CLASSIC or node.op_type in _OF_TEXTS


def _kept_inputs(node: Any) -> Iterator[str]:
    """Yield the inputs of a node that say how it computes."""
    positions = _OF_QUANTIZATION.get(node.op_type, ())
    if not positions and node.op_type.startswith("QLinear"):
        positions = _OF_OTHER_QUANTIZED
    for position in positions:
        if position < len(node.input):
            yield node.input[position]
