"""Resizing of images as OpenCV 4 and 5 compute it.

The formulas are from modules/imgproc/src/resize.cpp, https://github.com/opencv/opencv. Bytes are
interpolated with coefficients of 11 bits. INTER_AREA is the mean of the pixels that a larger one
covers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.pipeline.geometry import (
    Method,
    Pairs,
    Size,
    Taps,
    interpolate,
    pick_pixels,
    row_pairs,
    taps_within,
    weighted_sums,
)

_LEAST_PART = 1e-3  # of a pixel that counts


def pixel_scale(old: int, new: int) -> float:
    """Return the size of a new pixel in old ones, rounded as OpenCV rounds it."""
    return 1 / (new / old)


def pixel_starts(old: int, new: int) -> Array:
    """Return where the new pixels begin among the old ones."""
    return np.arange(new) * pixel_scale(old, new)


def area_means(image: Array, size: Size) -> Array:
    """Return the means of what the pixels of a smaller size cover (INTER_AREA).

    They are float32, or whole numbers where each covers four bytes.
    """
    height, width = image.shape[:2]
    if height % size.height == 0 and width % size.width == 0:
        return _block_means(image, size)
    down = _area_taps(height, size.height)
    across = _area_taps(width, size.width)
    return weighted_sums(image, down, across)


def _block_means(image: Array, size: Size) -> Array:
    """Return the means of whole blocks of pixels in float32.

    Four bytes are rounded up from a half, as OpenCV has a loop of its own for them.
    """
    height, width, channels = image.shape
    tall = height // size.height
    wide = width // size.width
    blocks = image.reshape(size.height, tall, size.width, wide, channels)
    is_bytes = image.dtype == np.uint8
    kind = np.int64 if is_bytes else np.float32
    total = blocks.sum(axis=(1, 3), dtype=kind)
    if is_bytes and tall == wide == 2:
        return np.asarray((total + 2) >> 2)
    share = np.float32(1 / (tall * wide))
    return np.asarray(total.astype(np.float32) * share)


def _area_taps(old: int, new: int) -> Taps:
    """Return the parts of old pixels that each new one covers (computeResizeAreaTab)."""
    scale = pixel_scale(old, new)
    begin = pixel_starts(old, new)
    end = begin + scale
    last = np.minimum(np.floor(end), old - 1)  # the last pixel that is covered at all
    first = np.minimum(np.ceil(begin), last)  # the first one that is covered as a whole
    length = np.minimum(scale, old - begin)
    before = first - begin  # of the pixel before the first
    part = np.minimum(np.minimum(end - last, 1), length)
    behind = np.where(end - last > _LEAST_PART, part, 0)  # of the last pixel

    start = np.where(before > _LEAST_PART, first - 1, first)
    most = int(np.ceil(scale)) + 2
    index = start + np.arange(most)[:, np.newaxis]
    weight = np.where(index < first, before, 1.0)
    weight = np.where(index == last, behind, weight)
    weight = np.where(index > last, 0, weight)
    return taps_within(index, weight / length, old)


_COEFFICIENT_ONE = np.float32(1 << 11)  # INTER_RESIZE_COEF_BITS


class _Steps(NamedTuple):
    """The pixel before each of the N new ones, which may be outside, and how far behind it is."""

    low: Array
    part: Array


def _nearest(image: Array, size: Size) -> Array:
    return pick_pixels(image, size, pixel_starts)


def _linear(image: Array, size: Size) -> Array:
    return _resize_between(image, size, _linear_steps)


def _linear_steps(old: int, new: int) -> _Steps:
    centres = (np.arange(new) + 0.5) * pixel_scale(old, new)
    positions = (centres - 0.5).astype(np.float32)
    low = np.floor(positions)
    return _Steps(low, positions - low)


def _area_steps(old: int, new: int) -> _Steps:
    """Return the steps of INTER_AREA where one of the axes grows."""
    low = np.floor(pixel_starts(old, new))
    ends = np.arange(1, new + 1)
    part = (ends - (low + 1) * (new / old)).astype(np.float32)
    share = part - np.floor(part)
    return _Steps(low, np.where(part <= 0, np.float32(0), share))


def _resize_between(image: Array, size: Size, steps: Callable[[int, int], _Steps]) -> Array:
    height, width = image.shape[:2]
    down = _pairs_of_rows(steps(height, size.height), height)
    across = _pairs_of_columns(steps(width, size.width), width)
    if image.dtype == np.uint8:
        return _interpolate_bytes(image, down, across)
    return interpolate(image, down, across)


def _pairs_of_columns(steps: _Steps, old: int) -> Pairs:
    """Return pairs of columns: at the edges the first and the last one alone."""
    is_outside = (steps.low < 0) | (steps.low >= old - 1)
    part = np.where(is_outside, np.float32(0), steps.part)
    return _pairs_of_rows(_Steps(steps.low, part), old)


def _pairs_of_rows(steps: _Steps, old: int) -> Pairs:
    """Return pairs of rows: at the edges twice the same, which rounds in another way than one."""
    last = old - 1
    low = np.clip(steps.low, 0, last).astype(np.intp)
    high = np.clip(steps.low + 1, 0, last).astype(np.intp)
    return Pairs(low, high, steps.part)


def _interpolate_bytes(image: Array, down: Pairs, across: Pairs) -> Array:
    """Interpolate bytes as OpenCV does: each row by columns, then between two of these rows."""
    needed = row_pairs(down)
    rows = image[needed.rows]
    left, right = _coefficients(across.part)
    mixed = rows[:, across.low] * left[:, np.newaxis]
    mixed += rows[:, across.high] * right[:, np.newaxis]
    mixed >>= 4
    above, below = _coefficients(down.part)
    total = _scaled_rows(mixed[needed.upper], above)
    total += _scaled_rows(mixed[needed.lower], below)
    total += 2
    total >>= 2
    return np.asarray(total, dtype=np.uint8)


def _scaled_rows(rows: Array, coefficients: Array) -> Array:
    return np.asarray((rows * coefficients[:, np.newaxis, np.newaxis]) >> 16)


def _coefficients(part: Array) -> tuple[Array, Array]:
    """Return the weights of the first and the second pixel of each pair, as int32 of 11 bits."""
    rest = np.float32(1) - part
    first = np.rint(rest * _COEFFICIENT_ONE)
    second = np.rint(part * _COEFFICIENT_ONE)
    return first.astype(np.int32), second.astype(np.int32)


def _area(image: Array, size: Size) -> Array:
    height, width = image.shape[:2]
    if size.height > height or size.width > width:
        return _resize_between(image, size, _area_steps)
    mean = area_means(image, size)
    if image.dtype != np.uint8:
        return mean
    return np.clip(np.rint(mean), 0, 255).astype(np.uint8)


METHODS: Mapping[str, Method] = {"nearest": _nearest, "bilinear": _linear, "area": _area}
"""Name of a method -> function that resizes as it does."""
