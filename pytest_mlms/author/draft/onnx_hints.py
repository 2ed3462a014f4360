"""Facts in an ONNX file beside its signature: the number of tokens, names of classes, and sizes."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_mlms.author.draft.onnx_axes import Axes, axes_of_inputs
from pytest_mlms.author.draft.quantisation import Quantisation

_PASSING = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that pass token ids on."""

_MOST_CLASSES = 100_000


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


def hints_of(path: Path) -> OnnxHints:
    """Return the hints of a file; none for another kind of file, and without onnx but axes."""
    axes = axes_of_inputs(path)
    if not axes:
        return OnnxHints()
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        return OnnxHints(axes=axes)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (DecodeError, OSError):
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
    numbers = range(len(names))
    if set(names) != set(numbers):
        return ()
    return tuple(str(names[number]) for number in numbers)


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
