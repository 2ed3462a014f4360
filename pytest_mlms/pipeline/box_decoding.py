"""The numbers of a model's output of boxes as corners in pixels of its input.

The first step of the output says what its numbers are; ``DECODERS`` has a function for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.box_steps import Anchors, Boxes, Columns, Yolo

__all__ = ["DECODERS", "BatchPlace", "ReadBoxes", "Size", "best_class"]

Array = NDArray[Any]
Size = tuple[int, int]
"""Height and width of the model's input."""


@dataclass(frozen=True, eq=False)
class ReadBoxes:
    """What the outputs say of K boxes of a picture.

    Attributes:
        corners: Left, top, right and bottom in pixels of the model's input (K x 4).
        scores: Of each box (K), or of each class of each box (K x C); None where another output
            has them.
        classes: Of each box (K); None where another output has them, or ``scores`` is K x C.
        rows: The index of each box in its output (K).
        coefficients: Of each box's mask (K x P), for models with prototypes of masks.
    """

    corners: Array
    scores: Array | None
    classes: Array | None
    rows: Array
    coefficients: Array | None = None


@dataclass(frozen=True)
class BatchPlace:
    """The size of the model's input, and the place of a picture in the batch."""

    size: Size
    number: int


def best_class(read: ReadBoxes) -> ReadBoxes:
    """Return boxes with their best class alone, where they have a score for each."""
    if read.scores is None or read.scores.ndim == 1:
        return read
    best = read.scores.argmax(axis=1)
    scores = np.take_along_axis(read.scores, best[:, None], axis=1)[:, 0]
    return replace(read, scores=scores, classes=best)


def _corners(numbers: Array, form: str) -> Array:
    """Return boxes of a form (K x 4) as left, top, right and bottom."""
    if form == "xyxy":
        return numbers
    if form == "yxyx":
        return numbers[:, [1, 0, 3, 2]]
    position = numbers[:, :2]
    sides = numbers[:, 2:]
    low = position - sides / 2 if form == "cxcywh" else position
    return np.concatenate([low, low + sides], axis=1)


def _in_pixels(corners: Array, units: str, size: Size) -> Array:
    if units == "pixels":
        return corners
    height, width = size
    return corners * np.array([width, height, width, height], np.float64)


def _table(values: Array) -> Array:
    """Return an output of one picture without the axes of 1 before its last two."""
    rows, columns = values.shape[-2:]
    return values.reshape(rows, columns)


def _read_boxes(values: Array, parameters: Boxes, place: BatchPlace) -> ReadBoxes:
    if values.shape[-1:] != (4,) and values.size:
        raise ValueError("expected boxes of 4 numbers; write another step than boxes")
    corners = _corners(values.reshape(-1, 4), parameters.format)
    pixels = _in_pixels(corners, parameters.units, place.size)
    return ReadBoxes(pixels, None, None, np.arange(len(pixels)))


def _read_columns(values: Array, parameters: Columns, place: BatchPlace) -> ReadBoxes:
    names = parameters.names
    if values.shape[-1:] != (len(names),) and values.size:
        raise ValueError(f"expected rows of the {len(names)} columns that the manifest names")
    table = values.reshape(-1, len(names))
    columns: dict[str, Array] = {name: table[:, index] for index, name in enumerate(names)}
    used = np.ones(len(table), bool)
    if "image" in columns:
        used &= columns["image"] == place.number
    if "score" in columns:
        used &= columns["score"] >= 0
    rows = np.flatnonzero(used)
    box_names, form = _box_columns(columns)
    numbers = np.stack([columns[name][rows] for name in box_names], axis=1)
    corners = _in_pixels(_corners(numbers, form), parameters.units, place.size)
    scores = columns["score"][rows] if "score" in columns else None
    classes = columns["class"][rows].astype(np.int64) if "class" in columns else None
    return ReadBoxes(corners, scores, classes, rows)


def _box_columns(columns: Mapping[str, Array]) -> tuple[tuple[str, ...], str]:
    """Return the names of the columns of a box, and the form that they are in."""
    if "cx" in columns:
        return ("cx", "cy", "width", "height"), "cxcywh"
    if "x2" in columns:
        return ("x1", "y1", "x2", "y2"), "xyxy"
    return ("x1", "y1", "width", "height"), "xywh"


def _read_yolo(values: Array, parameters: Yolo, place: BatchPlace) -> ReadBoxes:
    table = _table(values)
    if parameters.head == "v8":
        table = table.T
    first_score = 5 if parameters.head == "v5" else 4
    last_score = table.shape[1] - parameters.coefficients
    if last_score <= first_score:
        least = first_score + parameters.coefficients
        found = f"a {parameters.head} head has more than {least} numbers a box"
        raise ValueError(f"{found}, and this has {table.shape[1]}; write another head")
    scores = table[:, first_score:last_score]
    coefficients = table[:, last_score:] if parameters.coefficients else None
    if parameters.head == "v5":
        scores = scores * table[:, 4:5]
    corners = _corners(table[:, :4], "cxcywh")
    pixels = _in_pixels(corners, parameters.units, place.size)
    read = ReadBoxes(pixels, scores, None, np.arange(len(pixels)), coefficients)
    return best_class(read) if parameters.classes == "best" else read


def _read_anchors(values: Array, parameters: Anchors, place: BatchPlace) -> ReadBoxes:
    anchors = _anchor_boxes(parameters)
    found = _table(values)
    if len(found) != len(anchors) or found.shape[1] < 4:
        expected = f"the layers of the step have {len(anchors)} anchors"
        raise ValueError(f"{expected}, and the output {len(found)} boxes; correct the layers")
    numbers = found[:, :4]
    if parameters.order == "yxhw":
        numbers = numbers[:, [1, 0, 3, 2]]
    numbers = numbers / np.array(parameters.scale)
    centres = numbers[:, :2] * anchors[:, 2:] + anchors[:, :2]
    shares = np.exp(numbers[:, 2:]) if parameters.size == "exponential" else numbers[:, 2:]
    boxes = np.concatenate([centres, shares * anchors[:, 2:]], axis=1)
    corners = _in_pixels(_corners(boxes, "cxcywh"), "relative", place.size)
    return ReadBoxes(corners, None, None, np.arange(len(corners)))


def _anchor_boxes(parameters: Anchors) -> Array:
    """Return the centre and the size of all anchors, relative to the input (A x 4)."""
    layers = []
    for layer in parameters.layers:
        rows, columns = layer.grid
        sizes = np.array(layer.sizes, np.float64)
        y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
        centres = np.stack([(x + 0.5) / columns, (y + 0.5) / rows], axis=2).reshape(-1, 2)
        repeated = np.repeat(centres, len(sizes), axis=0)
        layers.append(np.concatenate([repeated, np.tile(sizes, (len(centres), 1))], axis=1))
    return np.concatenate(layers)


DECODERS: Mapping[str, Callable[[Array, Any, BatchPlace], ReadBoxes]] = {
    "boxes": _read_boxes,
    "columns": _read_columns,
    "yolo": _read_yolo,
    "anchors": _read_anchors,
}
"""Name of the step -> function of an output of one picture; raises ValueError for another shape."""
