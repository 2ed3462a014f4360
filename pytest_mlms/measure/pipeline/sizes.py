"""Sizes of images on their way through the steps, and the parts that are cut out or added."""

from __future__ import annotations

from typing import NamedTuple

from pytest_mlms.manifest.steps import MOST_PIXELS, Crop, Pad, Resize


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
        advice = _smaller(parameters)
        raise ValueError(f"{size} becomes {found}, which is too large; {advice}")
    return found


def _smaller(parameters: Resize) -> str:
    if parameters.keep_aspect_ratio:
        return "set keep_aspect_ratio: false"
    return "write 'longest' beside 'shortest', or a size"


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
    A ratio is that of tf.image.central_crop.
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
