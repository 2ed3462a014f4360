"""Interpolation of images in float32, between two pixels of each axis or over several of them.

An axis of an image has ``old`` pixels, and ``new`` ones after the image is resized. Where the new
pixels are among the old ones is up to each library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.pipeline.geometry import Size

Array = NDArray[Any]

Method = Callable[[Array, Size], Array]
"""Function of an image (H x W x C) and a size that returns the image in that size."""

Positions = Callable[[int, int], Array]
"""Function of old and new pixels that returns the position of each new one among the old ones."""


class Pairs(NamedTuple):
    """For each of the N new pixels of an axis the two old ones that it is between.

    Attributes:
        low: The index of the one before it (N).
        high: The index of the one behind it (N).
        part: How far it is from the first one to the second, 0 to 1 (N, float32).
    """

    low: Array
    high: Array
    part: Array


class RowPairs(NamedTuple):
    """The rows of an image that pairs need, each once.

    Attributes:
        rows: The indices of the rows in the image (U).
        upper: The index of the first row of each pair in ``rows`` (N).
        lower: The index of the second row of each pair in ``rows`` (N).
    """

    rows: Array
    upper: Array
    lower: Array


def row_pairs(pairs: Pairs) -> RowPairs:
    """Return the rows that pairs need."""
    both = np.concatenate([pairs.low, pairs.high])
    rows, places = np.unique(both, return_inverse=True)
    upper, lower = np.split(places, 2)
    return RowPairs(rows, upper, lower)


def interpolate(image: Array, down: Pairs, across: Pairs) -> Array:
    """Return an image (H x W x C) that is interpolated first across and then down, in float32."""
    needed = row_pairs(down)
    rows = image[needed.rows].astype(np.float32, copy=False)
    left = rows[:, across.low]
    mixed = rows[:, across.high]
    mixed -= left
    mixed *= across.part[:, np.newaxis]
    mixed += left
    upper = mixed[needed.upper]
    result = mixed[needed.lower]
    result -= upper
    result *= down.part[:, np.newaxis, np.newaxis]
    result += upper
    return result


class Taps(NamedTuple):
    """For each of the N new pixels of an axis T old ones (T x N), and their weights in float32."""

    pixels: Array
    weights: Array


def taps_within(index: Array, weight: Array, old: int) -> Taps:
    """Return taps at indices; indices outside of the axis must have no weight."""
    pixels = np.clip(index, 0, old - 1)
    return Taps(pixels.astype(np.intp), weight.astype(np.float32))


def weighted_sums(image: Array, down: Taps, across: Taps) -> Array:
    """Return weighted sums of an image's pixels in float32, first across and then down."""
    pixels = image.astype(np.float32)
    new_width = across.pixels.shape[1]
    rows = np.zeros((len(pixels), new_width, pixels.shape[2]), np.float32)
    for index, weight in zip(*across, strict=True):
        rows += pixels[:, index] * weight[:, np.newaxis]
    new_height = down.pixels.shape[1]
    result = np.zeros((new_height, *rows.shape[1:]), np.float32)
    for index, weight in zip(*down, strict=True):
        result += rows[index] * weight[:, np.newaxis, np.newaxis]
    return result


def pick_pixels(image: Array, size: Size, positions: Positions) -> Array:
    """Return the pixels at the positions of both axes, rounded down."""
    height, width = image.shape[:2]
    rows = _indices(positions(height, size.height), height)
    columns = _indices(positions(width, size.width), width)
    return np.asarray(image[rows][:, columns])


def _indices(positions: Array, old: int) -> Array:
    before = np.floor(positions)
    return np.minimum(before, old - 1).astype(np.intp)
