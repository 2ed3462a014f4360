"""Means of the pixels that larger ones cover, as OpenCV's INTER_AREA computes them.

The formulas are those of modules/imgproc/src/resize.cpp, https://github.com/opencv/opencv.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pytest_mlms.measure.pipeline.interpolation import Array, Taps, taps_within, weighted_sums
from pytest_mlms.measure.pipeline.sizes import Size

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


class _Cover(NamedTuple):
    """The old pixels of an axis that each of N new ones covers (N each).

    Attributes:
        first: The index of the first one that is covered as a whole.
        last: The index of the last one that is covered at all.
        before: The part of the one before the first.
        behind: The part of the last one.
        length: The length of all that is covered.
    """

    first: Array
    last: Array
    before: Array
    behind: Array
    length: Array


def _covers(old: int, new: int) -> _Cover:
    scale = pixel_scale(old, new)
    begin = pixel_starts(old, new)
    end = begin + scale
    last = np.minimum(np.floor(end), old - 1)
    first = np.minimum(np.ceil(begin), last)
    length = np.minimum(scale, old - begin)
    behind = end - last
    part = np.minimum(np.minimum(behind, 1), length)
    return _Cover(
        first=first,
        last=last,
        before=first - begin,
        behind=np.where(behind > _LEAST_PART, part, 0),
        length=length,
    )


def _area_taps(old: int, new: int) -> Taps:
    """Return the parts of old pixels that each new one covers (computeResizeAreaTab)."""
    first, last, before, behind, length = _covers(old, new)
    start = np.where(before > _LEAST_PART, first - 1, first)
    most = int(np.ceil(pixel_scale(old, new))) + 2
    index = start + np.arange(most)[:, np.newaxis]
    weight = np.where(index < first, before, 1.0)
    weight = np.where(index == last, behind, weight)
    weight = np.where(index > last, 0, weight)
    return taps_within(index, weight / length, old)
