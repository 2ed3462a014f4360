"""The numbers of a model's output of boxes as corners in pixels of its input.

The first step of the output says what its numbers are; ``DECODERS`` has a function for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pytest_mlms.manifest.box_steps import Boxes, Columns
from pytest_mlms.measure.pipeline.raw_heads import read_anchors, read_yolo
from pytest_mlms.measure.pipeline.read_boxes import Array, BatchPlace, ReadBoxes, box_pixels


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
