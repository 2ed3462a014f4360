"""Sizes of images on their way through steps, the way back to the picture, and interpolation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.steps import MOST_PIXELS, Crop, InputStep, Pad, Resize


class Size(NamedTuple):
    """The size of an image in pixels."""

    height: int
    width: int

    def __str__(self) -> str:
        return f"{self.height} x {self.width}"

    def without(self, part: Size) -> Size:
        """Return the rows and columns beside a part; below 0 where the part is larger."""
        height = self.height - part.height
        return Size(height, self.width - part.width)


class Window(NamedTuple):
    """A part of an image: its upper left corner, and its size."""

    top: int
    left: int
    height: int
    width: int


class Borders(NamedTuple):
    """Rows and columns of pixels that are added to an image."""

    top: int
    bottom: int
    left: int
    right: int


def resized_size(size: Size, parameters: Resize) -> Size:
    """Return the size that an image of ``size`` is resized to; raises ValueError for a too large.

    ``shortest`` and ``longest`` round the other side down, as torchvision does; where an image
    covers or fits into a size, its sides are rounded to the nearest.
    """
    if min(size) == 0:
        raise ValueError(f"an image of {size} has no pixels; leave it out")
    if parameters.size is None:
        found = _by_side(size, parameters.shortest, parameters.longest)
    else:
        found = _by_size(size, Size(*parameters.size), parameters.fitting)
    if found.height * found.width > MOST_PIXELS:
        advice = "write 'longest' beside 'shortest', or a size"
        if parameters.keep_aspect_ratio:
            advice = "set keep_aspect_ratio: false"
        raise ValueError(f"{size} becomes {found}, which is too large; {advice}")
    return found


def _by_side(size: Size, shortest: int | None, longest: int | None) -> Size:
    """Return the size of torchvision's Resize(shortest, max_size=longest).

    https://github.com/pytorch/vision, _compute_resized_output_size
    """
    short = min(size)
    long = max(size)
    if shortest is not None:
        new_short = shortest
        new_long = int(shortest * long / short)
        if longest is not None and new_long > longest:
            new_short = int(longest * new_short / new_long)
            new_long = longest
    else:
        assert longest is not None, "a resize without a size names a side"
        new_short = int(longest * short / long)
        new_long = longest
    new_short = max(new_short, 1)
    if size.width <= size.height:
        return Size(new_long, new_short)
    return Size(new_short, new_long)


def _by_size(size: Size, target: Size, fitting: str) -> Size:
    if fitting == "stretch":
        return target
    by_height = target.height / size.height
    by_width = target.width / size.width
    if fitting == "cover":
        scaled = _scaled(size, max(by_height, by_width))
        height = max(target.height, scaled.height)
        return Size(height, max(target.width, scaled.width))
    scaled = _scaled(size, min(by_height, by_width))
    height = min(target.height, scaled.height)
    width = min(target.width, scaled.width)
    return Size(max(1, height), max(1, width))


def _scaled(size: Size, factor: float) -> Size:
    height = round(size.height * factor)
    return Size(height, round(size.width * factor))


def crop_window(size: Size, parameters: Crop) -> Window:
    """Return the part of an image of ``size`` that is cut out; raises ValueError for a larger one.

    The upper left corner is rounded down, or by torchvision to the nearest, a half to the even one.
    A ratio has the meaning of tf.image.central_crop.
    """
    if parameters.ratio is not None:
        return _central_part(size, parameters.ratio)
    assert parameters.size is not None, "a crop without a ratio has a size"
    target = Size(*parameters.size)
    free = size.without(target)
    if min(free) < 0:
        raise ValueError(f"can't cut {target} out of {size}; resize or pad first")
    if parameters.library == "torchvision":
        top = round(free.height / 2)
        return Window(top, round(free.width / 2), *target)
    return Window(free.height // 2, free.width // 2, *target)


def _central_part(size: Size, ratio: float) -> Window:
    """Return the window of tf.image.central_crop.

    https://github.com/tensorflow/tensorflow, image_ops_impl.py
    """
    top = int((size.height - size.height * ratio) / 2)
    left = int((size.width - size.width * ratio) / 2)
    return Window(top, left, size.height - 2 * top, size.width - 2 * left)


def pad_borders(size: Size, parameters: Pad) -> Borders:
    """Return what is added to an image of ``size``; raises ValueError for one that is too large."""
    if parameters.border is not None:
        width = parameters.border
        return Borders(width, width, width, width)
    target = _padded_target(size, parameters)
    free = target.without(size)
    if min(free) < 0:
        raise ValueError(f"{size} is larger than {target}; resize with 'fit: contain' first")
    top = 0
    left = 0
    if parameters.align == "center":
        top = free.height // 2
        left = free.width // 2
    return Borders(top, free.height - top, left, free.width - left)


def _padded_target(size: Size, parameters: Pad) -> Size:
    if parameters.size is not None:
        return Size(*parameters.size)
    multiple = parameters.multiple or 1
    height = _rounded_up(size.height, multiple)
    return Size(height, _rounded_up(size.width, multiple))


def _rounded_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def padded_size(size: Size, borders: Borders) -> Size:
    """Return the size of an image with its borders."""
    height = size.height + borders.top + borders.bottom
    return Size(height, size.width + borders.left + borders.right)


@dataclass(frozen=True)
class Geometry:
    """The places of a picture's points in what was made of it.

    A point x of the picture is at ``scale`` · x + ``offset``; both have a number for x and one for
    y. ``size`` is the height and width that the steps so far have led to.
    """

    size: tuple[int, int]
    scale: tuple[float, float] = (1.0, 1.0)
    offset: tuple[float, float] = (0.0, 0.0)

    def resized(self, height: int, width: int) -> Geometry:
        """Return the geometry after everything is resized to this size."""
        old_height, old_width = self.size
        by_x = width / old_width
        by_y = height / old_height
        scale = (self.scale[0] * by_x, self.scale[1] * by_y)
        offset = (self.offset[0] * by_x, self.offset[1] * by_y)
        return Geometry((height, width), scale, offset)

    def moved(self, top: int, left: int, height: int, width: int) -> Geometry:
        """Return the geometry of a part that begins at ``top`` and ``left``; below 0 is padding."""
        offset = (self.offset[0] - left, self.offset[1] - top)
        return Geometry((height, width), self.scale, offset)

    def to_picture(self, corners: Array) -> Array:
        """Return boxes (left, top, right, bottom; n x 4) in the pixels of the picture."""
        scale = np.array([*self.scale, *self.scale])
        offset = np.array([*self.offset, *self.offset])
        return np.asarray((corners - offset) / scale)


def geometry_of(steps: Sequence[InputStep], height: int, width: int) -> Geometry:
    """Return the geometry of an input's steps for a picture of this size.

    Raises DatasetError for a step that moves points in a way that isn't known here, and ValueError
    for one that can't be done for a picture of this size.
    """
    geometry = Geometry((height, width))
    for step in steps:
        if step.name in _IN_PLACE:
            continue
        if step.name not in _MOVES:
            problem = f"boxes can't be put back through step {step.name!r}"
            raise DatasetError(f"{problem}; resize, crop or pad instead")
        geometry = _MOVES[step.name](geometry, step.parameters)
    return geometry


def _resize(geometry: Geometry, parameters: Resize) -> Geometry:
    return geometry.resized(*resized_size(Size(*geometry.size), parameters))


def _crop(geometry: Geometry, parameters: Crop) -> Geometry:
    return geometry.moved(*crop_window(Size(*geometry.size), parameters))


def _pad(geometry: Geometry, parameters: Pad) -> Geometry:
    size = Size(*geometry.size)
    borders = pad_borders(size, parameters)
    return geometry.moved(-borders.top, -borders.left, *padded_size(size, borders))


_IN_PLACE = ("decode", "color_order", "layout", "normalize", "cast")
"""Steps that leave every pixel where it is."""

_MOVES: Mapping[str, Callable[[Geometry, Any], Geometry]] = {
    "resize": _resize,
    "crop": _crop,
    "pad": _pad,
}


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
