"""The names of the axes of an ONNX file's inputs, which its framework doesn't tell.

They are read by the field numbers of onnx.proto3
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3), so that no package is needed.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlms_predictors._run.protobuf import fields, values

_GRAPH = 7  # of a model
_INPUT = 11  # of a graph
_NAME, _TYPE = 1, 2  # of a value
_TENSOR = 1  # of a type
_SHAPE = 2  # of a tensor's type
_AXIS = 1  # of a shape
_SIZE, _SYMBOL = 1, 2  # of an axis

Axes = tuple[int | str | None, ...]
"""The size of each axis, or its name, or None for one that has neither."""


def axes_of_inputs(path: Path) -> Mapping[str, Axes | None]:
    """Return the axes of each input by its name, () for a single number and None for unknown ones.

    Returns nothing for a file that is no ONNX, whatever it is called.
    """
    try:
        with path.open("rb") as file:
            model = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return {
            bytes(values(value, _NAME)[-1]).decode(): _axes(value)
            for graph in values(model, _GRAPH)
            for value in values(graph, _INPUT)
        }
    except (OSError, ValueError, TypeError, IndexError):  # empty, damaged, or of other fields
        return {}


def _axes(value: Any) -> Axes | None:
    shapes = [
        shape
        for kind in values(value, _TYPE)
        for tensor in values(kind, _TENSOR)
        for shape in values(tensor, _SHAPE)
    ]
    if not shapes:
        return None
    return tuple(_axis(axis) for axis in values(shapes[-1], _AXIS))


def _axis(message: Any) -> int | str | None:
    for field in fields(message):
        if field.number == _SIZE and isinstance(field.value, int):
            return field.value
        if field.number == _SYMBOL and not isinstance(field.value, int):
            return bytes(field.value).decode() or None
    return None
