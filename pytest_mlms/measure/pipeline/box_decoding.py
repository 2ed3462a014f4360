"""The numbers of a model's outputs of boxes as corners in pixels of its input.

The first step of the output says what its numbers are; ``DECODERS`` has a function for each: the
heads of YOLO, boxes relative to anchors as in SSD (https://arxiv.org/abs/1512.02325), columns of a
table, and plain boxes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.output_steps import Anchors, Boxes, Columns, Yolo

Array = NDArray[Any]
Size = tuple[int, int]
"""Height and width of the model's input."""


@dataclass(frozen=True, eq=False)
class ReadBoxes:
    """K boxes of a picture as the outputs have them.

    Attributes:
        corners: Left, top, right and bottom in pixels of the model's input (K x 4).
        rows: The index of each box in its output (K).
        scores: Of each box (K), or of each class of each box (K x C); None where another output
            has them.
        classes: Of each box (K); None where another output has them, or ``scores`` is K x C.
        coefficients: Of each box's mask (K x P), for models with prototypes of masks.
    """

    corners: Array
    rows: Array
    scores: Array | None = None
    classes: Array | None = None
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


def box_pixels(numbers: Array, form: str, units: str, place: BatchPlace) -> Array:
    """Return boxes of a form (K x 4) as corners in pixels of the model's input."""
    corners = _corners(numbers, form)
    if units == "pixels":
        return corners
    height, width = place.size
    return corners * np.array([width, height, width, height], np.float64)


def box_table(values: Array) -> Array:
    """Return an output of one picture without the axes of 1 before its last two."""
    shape = values.shape
    if len(shape) < 2 or any(length != 1 for length in shape[:-2]):
        raise ValueError("expected a table of boxes; name another output, or write another step")
    return values.reshape(shape[-2:])


def read_yolo(values: Array, parameters: Yolo, place: BatchPlace) -> ReadBoxes:
    """Return the boxes of a YOLO head, one picture's; raises ValueError for another shape.

    Behind the four columns of the box are the scores, in v5 behind the score of any object, and
    then the coefficients of masks.
    """
    table = box_table(values)
    if parameters.head == "v8":
        table = table.T
    first = 5 if parameters.head == "v5" else 4
    end = table.shape[1] - parameters.coefficients
    if end <= first:
        found = f"a {parameters.head} head has more than {first + parameters.coefficients} numbers"
        raise ValueError(f"{found} a box, and this has {table.shape[1]}; write another head")
    pixels = box_pixels(table[:, :4], "cxcywh", parameters.units, place)
    scores = table[:, first:end]
    if parameters.head == "v5":
        scores = scores * table[:, 4:5]
    read = ReadBoxes(pixels, np.arange(len(pixels)), scores)
    if parameters.coefficients:
        read = replace(read, coefficients=table[:, end:])
    return best_class(read) if parameters.classes == "best" else read


def read_anchors(values: Array, parameters: Anchors, place: BatchPlace) -> ReadBoxes:
    """Return the boxes that a model places by anchors; raises ValueError for another shape."""
    anchors = _anchor_boxes(parameters)
    table = box_table(values)
    if len(table) != len(anchors) or table.shape[1] < 4:
        expected = f"the layers of the step have {len(anchors)} anchors"
        raise ValueError(f"{expected}, and the output {len(table)} boxes; correct the layers")
    boxes = _boxes_of_offsets(table[:, :4], anchors, parameters)
    pixels = box_pixels(boxes, "cxcywh", "relative", place)
    return ReadBoxes(pixels, np.arange(len(pixels)))


def _anchor_boxes(parameters: Anchors) -> Array:
    """Return the centre and the size of all anchors, as shares of the input's (A x 4)."""
    layers = [_grid_boxes(layer.grid, tuple(layer.sizes)) for layer in parameters.layers]
    return np.concatenate(layers)


@functools.lru_cache(maxsize=64)  # asked for again for each picture
def _grid_boxes(grid: tuple[int, int], sizes: tuple[tuple[float, float], ...]) -> Array:
    """Return a box of each size at the centre of each cell of a grid of rows x columns."""
    rows, columns = grid
    y, x = np.meshgrid(_cell_centres(rows), _cell_centres(columns), indexing="ij")
    centres = np.stack([x.ravel(), y.ravel()], axis=1)
    each_centre = np.repeat(centres, len(sizes), axis=0)
    each_size = np.tile(sizes, (rows * columns, 1))
    return np.concatenate([each_centre, each_size], axis=1)


def _cell_centres(cells: int) -> Array:
    """Return the centres of the cells of an axis, as shares of its length."""
    return np.asarray((np.arange(cells) + 0.5) / cells)


def _boxes_of_offsets(offsets: Array, anchors: Array, parameters: Anchors) -> Array:
    """Return the centre and the size of the boxes that a model places by A anchors (A x 4).

    ``offsets`` (A x 4) are offsets of the centre and shares of the size, or their logarithms, in
    the order and the scale of the parameters. All are relative to the anchors' sizes.
    """
    if parameters.order == "yxhw":
        offsets = offsets[:, [1, 0, 3, 2]]
    scaled = offsets / np.array(parameters.scale)
    moves, shares = np.split(scaled, 2, axis=1)
    if parameters.size == "exponential":
        shares = np.exp(shares)
    centres, sizes = np.split(anchors, 2, axis=1)
    return np.concatenate([moves * sizes + centres, shares * sizes], axis=1)


def _read_boxes(values: Array, parameters: Boxes, place: BatchPlace) -> ReadBoxes:
    if values.shape[-1:] != (4,) and values.size:
        raise ValueError("expected boxes of 4 numbers; write another step than boxes")
    numbers = values.reshape(-1, 4)
    pixels = box_pixels(numbers, parameters.format, parameters.units, place)
    return ReadBoxes(pixels, np.arange(len(pixels)))


def _read_columns(values: Array, parameters: Columns, place: BatchPlace) -> ReadBoxes:
    columns = _columns(values, parameters.names)
    rows = _used_rows(columns, place.number)
    used = {name: column[rows] for name, column in columns.items()}
    box_names, form = _box_columns(used)
    numbers = np.stack([used[name] for name in box_names], axis=1)
    pixels = box_pixels(numbers, form, parameters.units, place)
    classes = used.get("class")
    if classes is not None:
        classes = classes.astype(np.int64)
    return ReadBoxes(pixels, rows, used.get("score"), classes)


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


DECODERS: Mapping[str, Callable[[Array, Any, BatchPlace], ReadBoxes]] = {
    "boxes": _read_boxes,
    "columns": _read_columns,
    "yolo": read_yolo,
    "anchors": read_anchors,
}
"""Name of the step -> function of an output of one picture; raises ValueError for another shape."""
