"""Resizing of images as TensorFlow computes it, since version 2 and in version 1.

The formulas are from core/kernels/image/resize_bilinear_op.cc, resize_area_op.cc and
resize_nearest_neighbor_op.cc, https://github.com/tensorflow/tensorflow. The centres of pixels are
half a pixel inside, as tf.image.resize has them, or not, as in tf.compat.v1.image.resize.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.pipeline.geometry import (
    Method,
    Pairs,
    Positions,
    Size,
    Taps,
    interpolate,
    pick_pixels,
    taps_within,
    weighted_sums,
)

_HALF = np.float32(0.5)


def _scale(old: int, new: int) -> np.float32:
    """Return the size of a new pixel in old ones, as TensorFlow rounds it."""
    return np.float32(np.float32(old) / np.float32(new))


def _corners(old: int, new: int) -> Array:
    numbers = np.arange(new, dtype=np.float32)
    return np.asarray(numbers * _scale(old, new))


def _centres(old: int, new: int) -> Array:
    numbers = np.arange(new, dtype=np.float32)
    return np.asarray((numbers + _HALF) * _scale(old, new))


def _between_centres(old: int, new: int) -> Array:
    return np.asarray(_centres(old, new) - _HALF)


def _nearest(image: Array, size: Size) -> Array:
    return pick_pixels(image, size, _centres)


def _nearest_1(image: Array, size: Size) -> Array:
    return pick_pixels(image, size, _corners)


def _linear(image: Array, size: Size) -> Array:
    return _resize_between(image, size, _between_centres)


def _linear_1(image: Array, size: Size) -> Array:
    return _resize_between(image, size, _corners)


def _resize_between(image: Array, size: Size, positions: Positions) -> Array:
    height, width = image.shape[:2]
    down = _pairs(positions(height, size.height), height)
    across = _pairs(positions(width, size.width), width)
    return interpolate(image, down, across)


def _pairs(positions: Array, old: int) -> Pairs:
    floor = np.floor(positions)
    low = np.maximum(floor, 0)
    high = np.minimum(np.ceil(positions), old - 1)
    return Pairs(low.astype(np.intp), high.astype(np.intp), positions - floor)


def _area(image: Array, size: Size) -> Array:
    height, width = image.shape[:2]
    down = _area_taps(height, size.height)
    across = _area_taps(width, size.width)
    return weighted_sums(image, down, across)


def _area_taps(old: int, new: int) -> Taps:
    scale = _scale(old, new)
    begin = _corners(old, new)
    end = np.arange(1, new + 1, dtype=np.float32) * scale
    most = int(np.ceil(scale)) + 1
    index = np.floor(begin) + np.arange(most)[:, np.newaxis]
    covered_until = np.minimum(index + 1, end)
    covered_from = np.maximum(index, begin)
    covered = np.clip(covered_until - covered_from, 0, 1)
    return taps_within(index, covered / scale, old)


METHODS: Mapping[str, Method] = {"nearest": _nearest, "bilinear": _linear, "area": _area}
"""Name of a method -> function that resizes as TensorFlow 2 does."""

METHODS_1: Mapping[str, Method] = {"nearest": _nearest_1, "bilinear": _linear_1, "area": _area}
"""Name of a method -> function that resizes as TensorFlow 1 does."""
