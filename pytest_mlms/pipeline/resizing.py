"""Resizing of images as Pillow, OpenCV and TensorFlow compute it.

Pillow's filters widen when they shrink an image (they anti-alias). OpenCV's and TensorFlow's
bilinear reads four pixels whatever the scale, and their area averages what a pixel covers. Pillow
itself does the first; the others are written out in numpy, from the formulas of their sources:

- OpenCV 4 and 5: modules/imgproc/src/resize.cpp. With uint8, bilinear has coefficients of 11 bits.
- TensorFlow: core/kernels/image/resize_bilinear_op.cc, resize_area_op.cc and
  resize_nearest_neighbor_op.cc. ``tensorflow`` has the centres of pixels half a pixel inside, as
  tf.image.resize has; ``tensorflow1`` hasn't, as tf.compat.v1.image.resize has not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_mlms.pipeline.sizes import Size

__all__ = ["resize_image"]

Array = NDArray[Any]

_BITS = 11  # of OpenCV's coefficients, INTER_RESIZE_COEF_BITS
_PARTIAL = 1e-3  # the least part of a pixel that OpenCV's area takes


def resize_image(image: Array, size: Size, library: str, method: str) -> Array:
    """Return an image (H x W x C) resized to ``size``, as the method of that library does.

    TensorFlow's bilinear and area give float32, the others the type of the image, floats as
    float32.
    """
    if image.shape[:2] == size:
        return image
    if library == "pillow":
        return _pillow(image, size, method)
    return _METHODS[library, method](image, size)


def _pillow(image: Array, size: Size, method: str) -> Array:
    resampling = Image.Resampling[method.upper()]
    order = (size.width, size.height)
    if image.dtype == np.uint8 and image.shape[2] in (1, 3):
        pixels = image[..., 0] if image.shape[2] == 1 else image
        resized = np.asarray(Image.fromarray(pixels).resize(order, resampling))
        return resized[..., np.newaxis] if image.shape[2] == 1 else resized
    channels = []
    for channel in np.moveaxis(image, 2, 0):
        values = np.ascontiguousarray(channel, dtype=np.float32)
        channels.append(np.asarray(Image.fromarray(values).resize(order, resampling)))
    return np.stack(channels, axis=2)


class _Pairs(NamedTuple):
    """For each of the N new pixels of an axis the two that it is between, and how far."""

    low: Array
    high: Array
    part: Array


def _opencv_linear(image: Array, size: Size) -> Array:
    return _opencv_between(image, size, _opencv_positions)


def _opencv_positions(old: int, new: int) -> tuple[Array, Array]:
    """Return the pixel before each new one, and how far behind it that is."""
    position = ((np.arange(new) + 0.5) * _scale(old, new) - 0.5).astype(np.float32)
    low = np.floor(position)
    return low, position - low


def _opencv_area_positions(old: int, new: int) -> tuple[Array, Array]:
    """Return the positions of INTER_AREA where one of the axes grows."""
    number = np.arange(new)
    low = np.floor(number * _scale(old, new))
    part = ((number + 1) - (low + 1) * (new / old)).astype(np.float32)
    return low, np.where(part <= 0, np.float32(0), part - np.floor(part))


def _columns(low: Array, part: Array, old: int) -> _Pairs:
    """Return pairs of columns: at the edges the first and the last one alone."""
    outside = (low < 0) | (low >= old - 1)
    return _rows(low, np.where(outside, np.float32(0), part), old)


def _rows(low: Array, part: Array, old: int) -> _Pairs:
    """Return pairs of rows: at the edges twice the same, which rounds in another way than one."""
    first = np.clip(low, 0, old - 1).astype(np.intp)
    second = np.clip(low + 1, 0, old - 1).astype(np.intp)
    return _Pairs(first, second, part)


def _scale(old: int, new: int) -> float:
    """Return the size of a new pixel in old ones, rounded as OpenCV rounds it."""
    return 1 / (new / old)


def _opencv_between(
    image: Array, size: Size, positions: Callable[[int, int], tuple[Array, Array]]
) -> Array:
    height, width = image.shape[:2]
    down = _rows(*positions(height, size.height), height)
    across = _columns(*positions(width, size.width), width)
    if image.dtype == np.uint8:
        return _fixed_point(image, down, across)
    return _between(image.astype(np.float32), down, across)


def _fixed_point(image: Array, down: _Pairs, across: _Pairs) -> Array:
    """Interpolate bytes as OpenCV does: each row by columns, then between two of these rows."""
    rows, inverse = np.unique(np.concatenate([down.low, down.high]), return_inverse=True)
    used = image[rows]
    left, right = _coefficients(across.part)
    mixed = used[:, across.low] * left[:, np.newaxis]
    mixed += used[:, across.high] * right[:, np.newaxis]
    mixed >>= 4
    count = len(down.low)
    above, below = _coefficients(down.part)
    upper = (mixed[inverse[:count]] * above[:, np.newaxis, np.newaxis]) >> 16
    lower = (mixed[inverse[count:]] * below[:, np.newaxis, np.newaxis]) >> 16
    return np.asarray((upper + lower + 2) >> 2, dtype=np.uint8)


def _coefficients(part: Array) -> tuple[Array, Array]:
    one = np.float32(1)
    scale = np.float32(1 << _BITS)
    first = np.rint((one - part) * scale).astype(np.int32)
    return first, np.rint(part * scale).astype(np.int32)


def _between(image: Array, down: _Pairs, across: _Pairs) -> Array:
    """Interpolate float32, first across and then down."""
    part = across.part[:, np.newaxis]
    rows, inverse = np.unique(np.concatenate([down.low, down.high]), return_inverse=True)
    used = image[rows]
    left = used[:, across.low]
    mixed = left + (used[:, across.high] - left) * part
    count = len(down.low)
    upper = mixed[inverse[:count]]
    lower = mixed[inverse[count:]]
    return np.asarray(upper + (lower - upper) * down.part[:, np.newaxis, np.newaxis])


class _Taps(NamedTuple):
    """For each of the N new pixels of an axis T old ones (T x N), and their weights in float32."""

    pixels: Array
    weights: Array


def _opencv_area(image: Array, size: Size) -> Array:
    height, width = image.shape[:2]
    if size.height > height or size.width > width:
        return _opencv_between(image, size, _opencv_area_positions)
    if height % size.height == 0 and width % size.width == 0:
        mean = _mean_of_blocks(image, size)
    else:
        down = _opencv_taps(height, size.height)
        mean = _weighted(image, down, _opencv_taps(width, size.width))
    if image.dtype != np.uint8:
        return mean
    return np.clip(np.rint(mean), 0, 255).astype(np.uint8)


def _mean_of_blocks(image: Array, size: Size) -> Array:
    """Return the means of whole blocks of pixels in float32.

    Four bytes are rounded up from a half, as OpenCV has a loop of its own for them.
    """
    tall = image.shape[0] // size.height
    wide = image.shape[1] // size.width
    kind = np.int64 if image.dtype == np.uint8 else np.float32
    blocks = image.reshape(size.height, tall, size.width, wide, image.shape[2])
    total = blocks.sum(axis=(1, 3), dtype=kind)
    if (tall, wide) == (2, 2) and image.dtype == np.uint8:
        return np.asarray((total + 2) >> 2)
    return np.asarray(total.astype(np.float32) * np.float32(1 / (tall * wide)))


def _opencv_taps(old: int, new: int) -> _Taps:
    """Return the parts of old pixels that each new one covers (computeResizeAreaTab)."""
    scale = _scale(old, new)
    begin = np.arange(new) * scale
    end = begin + scale
    covered = np.minimum(scale, old - begin)
    last = np.minimum(np.floor(end), old - 1)
    first = np.minimum(np.ceil(begin), last)
    before = first - begin
    behind = np.minimum(np.minimum(end - last, 1), covered)
    starts = np.where(before > _PARTIAL, first - 1, first)
    index = starts + np.arange(int(np.ceil(scale)) + 2)[:, np.newaxis]
    weight = np.where(index < first, before, 1.0)
    weight = np.where(index == last, np.where(end - last > _PARTIAL, behind, 0), weight)
    weight = np.where(index > last, 0, weight)
    return _taps(index, weight / covered, old)


def _taps(index: Array, weight: Array, old: int) -> _Taps:
    return _Taps(np.clip(index, 0, old - 1).astype(np.intp), weight.astype(np.float32))


def _weighted(image: Array, down: _Taps, across: _Taps) -> Array:
    """Return weighted sums of float32, first across and then down."""
    pixels = image.astype(np.float32)
    rows = np.zeros((len(pixels), across.pixels.shape[1], pixels.shape[2]), np.float32)
    for index, weight in zip(*across, strict=True):
        rows += pixels[:, index] * weight[:, np.newaxis]
    result = np.zeros((down.pixels.shape[1], *rows.shape[1:]), np.float32)
    for index, weight in zip(*down, strict=True):
        result += rows[index] * weight[:, np.newaxis, np.newaxis]
    return result


def _opencv_nearest(image: Array, size: Size) -> Array:
    return _picked(image, size, lambda old, new: np.arange(new) * _scale(old, new))


def _picked(image: Array, size: Size, positions: Callable[[int, int], Array]) -> Array:
    """Return the pixels at the positions of both axes, rounded down."""
    height, width = image.shape[:2]
    rows = np.minimum(np.floor(positions(height, size.height)), height - 1).astype(np.intp)
    columns = np.minimum(np.floor(positions(width, size.width)), width - 1).astype(np.intp)
    return np.asarray(image[rows][:, columns])


def _step(old: int, new: int) -> Any:
    """Return the size of a new pixel in old ones, as TensorFlow rounds it."""
    return np.float32(old) / np.float32(new)


def _corners(old: int, new: int) -> Array:
    return np.asarray(np.arange(new, dtype=np.float32) * _step(old, new))


def _centres(old: int, new: int) -> Array:
    return np.asarray((np.arange(new, dtype=np.float32) + np.float32(0.5)) * _step(old, new))


def _tensorflow_linear(image: Array, size: Size) -> Array:
    return _tensorflow_between(image, size, lambda old, new: _centres(old, new) - np.float32(0.5))


def _tensorflow1_linear(image: Array, size: Size) -> Array:
    return _tensorflow_between(image, size, _corners)


def _tensorflow_between(image: Array, size: Size, positions: Callable[[int, int], Array]) -> Array:
    def pairs(old: int, new: int) -> _Pairs:
        position = positions(old, new)
        floor = np.floor(position)
        low = np.maximum(floor, 0).astype(np.intp)
        high = np.minimum(np.ceil(position), old - 1).astype(np.intp)
        return _Pairs(low, high, position - floor)

    height, width = image.shape[:2]
    return _between(image.astype(np.float32), pairs(height, size.height), pairs(width, size.width))


def _tensorflow_area(image: Array, size: Size) -> Array:
    height, width = image.shape[:2]
    return _weighted(
        image, _tensorflow_taps(height, size.height), _tensorflow_taps(width, size.width)
    )


def _tensorflow_taps(old: int, new: int) -> _Taps:
    scale = _step(old, new)
    begin = _corners(old, new)
    end = np.arange(1, new + 1, dtype=np.float32) * scale
    index = np.floor(begin) + np.arange(int(np.ceil(scale)) + 1)[:, np.newaxis]
    covered = np.minimum(index + 1, end) - np.maximum(index, begin)
    return _taps(index, np.clip(covered, 0, 1) / scale, old)


_METHODS: dict[tuple[str, str], Callable[[Array, Size], Array]] = {
    ("opencv", "nearest"): _opencv_nearest,
    ("opencv", "bilinear"): _opencv_linear,
    ("opencv", "area"): _opencv_area,
    ("tensorflow", "nearest"): lambda image, size: _picked(image, size, _centres),
    ("tensorflow", "bilinear"): _tensorflow_linear,
    ("tensorflow", "area"): _tensorflow_area,
    ("tensorflow1", "nearest"): lambda image, size: _picked(image, size, _corners),
    ("tensorflow1", "bilinear"): _tensorflow1_linear,
    ("tensorflow1", "area"): _tensorflow_area,
}
