"""Boxes of a picture as a model's outputs have them, and their forms and units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
