"""Boxes in the raw outputs of models: the heads of YOLO, and boxes that are relative to anchors.

Anchors are those of SSD, https://arxiv.org/abs/1512.02325.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pytest_mlms.manifest.box_steps import Anchors, Yolo
from pytest_mlms.measure.pipeline.read_boxes import (
    Array,
    BatchPlace,
    ReadBoxes,
    best_class,
    box_pixels,
    box_table,
)


def read_yolo(values: Array, parameters: Yolo, place: BatchPlace) -> ReadBoxes:
    """Return the boxes of a YOLO head, one picture's; raises ValueError for another shape."""
    table = box_table(values)
    if parameters.head == "v8":
        table = table.T
    columns = _yolo_columns(table.shape[1], parameters)
    pixels = box_pixels(table[:, :4], "cxcywh", parameters.units, place)
    scores = table[:, columns.scores]
    if columns.object_score is not None:
        scores = scores * table[:, columns.object_score]
    read = ReadBoxes(pixels, np.arange(len(pixels)), scores)
    if parameters.coefficients:
        read = replace(read, coefficients=table[:, columns.coefficients])
    return best_class(read) if parameters.classes == "best" else read


class _YoloColumns(NamedTuple):
    """The columns of a YOLO head behind the four of the box.

    ``object_score`` is that of any object, which the scores of v5 are multiplied with.
    """

    scores: slice
    coefficients: slice
    object_score: slice | None


def _yolo_columns(count: int, parameters: Yolo) -> _YoloColumns:
    """Return the columns of a head of so many; raises ValueError for too few of them."""
    object_score = slice(4, 5) if parameters.head == "v5" else None
    first = object_score.stop if object_score else 4
    end = count - parameters.coefficients
    if end <= first:
        least = first + parameters.coefficients
        found = f"a {parameters.head} head has more than {least} numbers a box"
        raise ValueError(f"{found}, and this has {count}; write another head")
    return _YoloColumns(slice(first, end), slice(end, count), object_score)


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
    y, x = np.meshgrid(_centres(rows), _centres(columns), indexing="ij")
    centres = np.stack([x.ravel(), y.ravel()], axis=1)
    each_centre = np.repeat(centres, len(sizes), axis=0)
    each_size = np.tile(sizes, (rows * columns, 1))
    return np.concatenate([each_centre, each_size], axis=1)


def _centres(cells: int) -> Array:
    """Return the centres of the cells of an axis, as shares of its length."""
    return np.asarray((np.arange(cells) + 0.5) / cells)


def _boxes_of_offsets(offsets: Array, anchors: Array, parameters: Anchors) -> Array:
    """Return the centre and the size of the boxes that a model places by A anchors (A x 4).

    ``offsets`` (A x 4) are those of the centre and the shares of the size, or their logarithms, in
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
