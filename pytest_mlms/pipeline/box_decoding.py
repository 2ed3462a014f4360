"""The numbers of a model's output of boxes as corners in pixels of its input.

The first step of the output says what its numbers are; ``DECODERS`` has a function for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.box_steps import Anchors, Boxes, Columns, Yolo
from pytest_mlms.pipeline.anchors import anchor_boxes, boxes_of_offsets

__all__ = ["DECODERS", "BatchPlace", "ReadBoxes", "Size", "best_class"]

Array = NDArray[Any]
Size = tuple[int, int]
"""Height and width of the model's input."""


@dataclass(frozen=True, eq=False)
class ReadBoxes:
    """K boxes of a picture as the outputs have them.

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
    classes = read.scores.argmax(axis=1)
    scores = np.take_along_axis(read.scores, classes[:, np.newaxis], axis=1)
    return replace(read, scores=scores[:, 0], classes=classes)


def _corners(numbers: Array, form: str) -> Array:
    """Return boxes of a form (K x 4) as left, top, right and bottom."""
    if form == "xyxy":
        return numbers
    if form == "yxyx":
        return numbers[:, [1, 0, 3, 2]]
    low, sides = np.split(numbers, 2, axis=1)
    if form == "cxcywh":
        low = low - sides / 2
    return np.concatenate([low, low + sides], axis=1)


def _in_pixels(corners: Array, units: str, size: Size) -> Array:
    if units == "pixels":
        return corners
    height, width = size
    return corners * np.array([width, height, width, height], np.float64)


def _table(values: Array) -> Array:
    """Return an output of one picture without the axes of 1 before its last two."""
    shape = values.shape
    if len(shape) < 2 or any(length != 1 for length in shape[:-2]):
        raise ValueError("expected a table of boxes; name another output, or write another step")
    return values.reshape(shape[-2:])


def _read_boxes(values: Array, parameters: Boxes, place: BatchPlace) -> ReadBoxes:
    if values.shape[-1:] != (4,) and values.size:
        raise ValueError("expected boxes of 4 numbers; write another step than boxes")
    corners = _corners(values.reshape(-1, 4), parameters.format)
    pixels = _in_pixels(corners, parameters.units, place.size)
    return ReadBoxes(pixels, None, None, np.arange(len(pixels)))


def _read_columns(values: Array, parameters: Columns, place: BatchPlace) -> ReadBoxes:
    columns = _columns(values, parameters.names)
    rows = _used_rows(columns, place.number)
    used = {name: column[rows] for name, column in columns.items()}
    box_names, form = _box_columns(used)
    numbers = np.stack([used[name] for name in box_names], axis=1)
    corners = _corners(numbers, form)
    pixels = _in_pixels(corners, parameters.units, place.size)
    classes = used.get("class")
    if classes is not None:
        classes = classes.astype(np.int64)
    return ReadBoxes(pixels, used.get("score"), classes, rows)


def _columns(values: Array, names: Sequence[str]) -> dict[str, Array]:
    """Return the columns of an output by name."""
    count = len(names)
    if values.shape[-1:] != (count,) and values.size:
        raise ValueError(f"expected rows of the {count} columns that the manifest names")
    table = values.reshape(-1, count)
    return dict(zip(names, table.T, strict=True))


def _used_rows(columns: Mapping[str, Array], number: int) -> Array:
    """Return the indices of the rows of a picture that aren't empty.

    A score of NaN doesn't make a row empty: it is an error of the model, which is reported.
    """
    first, *_ = columns.values()
    used = np.ones(len(first), bool)
    if "image" in columns:
        used &= columns["image"] == number
    if "score" in columns:
        used &= ~(columns["score"] < 0)
    return np.flatnonzero(used)


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
    corners = _corners(table[:, :4], "cxcywh")
    pixels = _in_pixels(corners, parameters.units, place.size)
    scores, coefficients = _yolo_scores(table, parameters)
    rows = np.arange(len(pixels))
    read = ReadBoxes(pixels, scores, None, rows, coefficients)
    return best_class(read) if parameters.classes == "best" else read


def _yolo_scores(table: Array, parameters: Yolo) -> tuple[Array, Array | None]:
    """Return the scores of each class (K x C), and the coefficients of the masks (K x P)."""
    first = 5 if parameters.head == "v5" else 4
    end = table.shape[1] - parameters.coefficients
    if end <= first:
        least = first + parameters.coefficients
        found = f"a {parameters.head} head has more than {least} numbers a box"
        raise ValueError(f"{found}, and this has {table.shape[1]}; write another head")
    scores = table[:, first:end]
    if parameters.head == "v5":
        scores = scores * table[:, 4:5]
    coefficients = table[:, end:] if parameters.coefficients else None
    return scores, coefficients


def _read_anchors(values: Array, parameters: Anchors, place: BatchPlace) -> ReadBoxes:
    anchors = anchor_boxes(parameters)
    table = _table(values)
    if len(table) != len(anchors) or table.shape[1] < 4:
        expected = f"the layers of the step have {len(anchors)} anchors"
        raise ValueError(f"{expected}, and the output {len(table)} boxes; correct the layers")
    boxes = boxes_of_offsets(table[:, :4], anchors, parameters)
    corners = _corners(boxes, "cxcywh")
    pixels = _in_pixels(corners, "relative", place.size)
    return ReadBoxes(pixels, None, None, np.arange(len(pixels)))


DECODERS: Mapping[str, Callable[[Array, Any, BatchPlace], ReadBoxes]] = {
    "boxes": _read_boxes,
    "columns": _read_columns,
    "yolo": _read_yolo,
    "anchors": _read_anchors,
}
"""Name of the step -> function of an output of one picture; raises ValueError for another shape."""
