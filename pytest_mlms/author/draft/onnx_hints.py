"""Facts in an ONNX file beside its signature: names of axes and classes, tokens, categories, sizes.

Names of axes, which the framework doesn't tell, are read by the field numbers of onnx.proto3
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3), so that they need no package. All else
needs onnx.
"""

from __future__ import annotations

import ast
import contextlib
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlms_predictors._run.protobuf import fields, values

if TYPE_CHECKING:
    from pytest_mlms.author.draft.quantisation import Quantisation

_GRAPH = 7  # of a model
_INPUT = 11  # of a graph
_NAME, _TYPE = 1, 2  # of a value
_TENSOR = 1  # of a type
_SHAPE = 2  # of a tensor's type
_AXIS = 1  # of a shape
_SIZE, _SYMBOL = 1, 2  # of an axis

_PASSING = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that pass token ids on."""

_MOST_CLASSES = 100_000
_CLASSES = ("classlabels_strings", "classlabels_int64s", "classlabels_ints")
"""Attributes that have the classes of a classifier."""
_INITIALIZER = "classes"  # of classifiers that have no operator of their own
_ML = "ai.onnx.ml"
_CATEGORIES = {
    "OneHotEncoder": ("cats_strings",),
    "LabelEncoder": ("keys_strings", "keys_tensor"),
    "CategoryMapper": ("cats_strings",),
}
"""Encoders of categories, and the attributes that have the texts that they take.

https://onnx.ai/onnx/operators/index.html, ai.onnx.ml
"""

Axes = tuple[int | str | None, ...]
"""The size of each axis, or its name, or None for one that has neither."""


@dataclass(frozen=True)
class OnnxHints:
    """Hints of an ONNX file beside its signature.

    Attributes:
        vocabulary: The rows of the table that each input indexes, where there is one.
        names: The names of the classes in its metadata, as Ultralytics writes them.
        size: Height and width of pictures in its metadata.
        axes: The axes of each input with their names, None for one whose shape is unknown.
        quantised: The scale and the zero point of inputs and outputs, also of other formats.
    """

    vocabulary: dict[str, int] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    size: tuple[int, int] | None = None
    axes: Mapping[str, Axes | None] = field(default_factory=dict)
    quantised: Mapping[str, Quantisation] = field(default_factory=dict)


def model_in(path: Path) -> Any:
    """Return the model in an ONNX file without weights that are beside it.

    None for another kind of file, for one that can't be read, and without onnx.
    """
    if not axes_of_inputs(path):
        return None
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        return None
    try:
        return onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError):
        return None


def hints_of(path: Path) -> OnnxHints:
    """Return the hints of a file; none for another kind of file, and without onnx but axes."""
    axes = axes_of_inputs(path)
    model = model_in(path)
    if model is None:
        return OnnxHints(axes=axes)
    metadata = {}
    for entry in model.metadata_props:
        with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            metadata[entry.key] = ast.literal_eval(entry.value)
    return OnnxHints(_vocabulary(model.graph), _names(metadata), _size(metadata), axes)


def _names(metadata: dict[str, Any]) -> tuple[str, ...]:
    names = metadata.get("names")
    if not isinstance(names, dict) or len(names) > _MOST_CLASSES:
        return ()
    if set(names) != set(range(len(names))):
        return ()
    return tuple(str(names[number]) for number in range(len(names)))


def _size(metadata: dict[str, Any]) -> tuple[int, int] | None:
    size = metadata.get("imgsz")
    if not isinstance(size, list) or len(size) != 2:
        return None
    height, width = size
    if not isinstance(height, int) or not isinstance(width, int) or min(height, width) < 1:
        return None
    return height, width


def _vocabulary(graph: Any) -> dict[str, int]:
    """Return the rows of the table that each input of a graph indexes."""
    rows = {weight.name: weight.dims[0] for weight in graph.initializer if weight.dims}
    origins = {value.name: value.name for value in graph.input}
    found: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _PASSING and node.input:
            source = node.input[0]
            if source in origins:
                origins[node.output[0]] = origins[source]
        elif node.op_type == "Gather" and len(node.input) == 2:
            table, index = node.input
            if table in rows and index in origins:
                name = origins[index]
                count = int(rows[table])
                found[name] = min(found.get(name, count), count)
    return found


def axes_of_inputs(path: Path) -> Mapping[str, Axes | None]:
    """Return the axes of each input by its name, () for a single number and None for unknown ones.

    Returns nothing for a file that is no ONNX, whatever it is called.
    """
    found = {}
    try:
        with path.open("rb") as file:
            model = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        for graph in values(model, _GRAPH):
            for value in values(graph, _INPUT):
                name = bytes(values(value, _NAME)[-1]).decode()
                found[name] = _axes(value)
    except (OSError, ValueError, TypeError, IndexError):  # empty, damaged, or of other fields
        return {}
    return found


def _axes(value: Any) -> Axes | None:
    shapes = []
    for kind in values(value, _TYPE):
        for tensor in values(kind, _TENSOR):
            shapes += values(tensor, _SHAPE)
    if not shapes:
        return None
    return tuple(_axis(axis) for axis in values(shapes[-1], _AXIS))


def _axis(message: Any) -> int | str | None:
    for each in fields(message):
        if each.number == _SIZE and isinstance(each.value, int):
            return each.value
        if each.number == _SYMBOL and not isinstance(each.value, int):
            return bytes(each.value).decode() or None
    return None


def classes_in(path: Path) -> list[str]:
    """Return the classes of a classifier as texts, in the order of its scores.

    There are none for another kind of file, without onnx, and where they have no names. The
    classifier that is computed last counts: others may be parts of an ensemble.
    """
    model = model_in(path)
    if model is None:
        return []
    for weight in model.graph.initializer:
        if weight.name == _INITIALIZER and len(weight.dims) == 1:
            import onnx

            return [_text(value) for value in onnx.numpy_helper.to_array(weight).tolist()]
    found: list[str] = []
    for node in model.graph.node:
        for attribute in node.attribute:
            classes = [*attribute.strings, *attribute.ints]
            if node.domain == _ML and attribute.name in _CLASSES and classes:
                found = [_text(value) for value in classes]
                break
    return found


def categories_in(path: Path) -> frozenset[str]:
    """Return the texts that the encoders of a model know, all of them together.

    None for another kind of file, without onnx, and for a model without such encoders.
    """
    model = model_in(path)
    if model is None:
        return frozenset()
    found: set[str] = set()
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in _CATEGORIES.get(node.op_type, ()):
                texts = [*attribute.strings, *attribute.t.string_data]
                found.update(map(_text, texts))
    return frozenset(found)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
