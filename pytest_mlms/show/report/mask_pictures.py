"""Pictures of masks: wrong and right pixels, or instances one by one, on the grey input."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from PIL import Image

from pytest_mlms.measure.evaluate.tasks.task import MaskPair

_COLOURED = 0.55  # share of the colour in a pixel that is marked
_KEPT = 0.45  # share of the picture in it
_RIGHT = (20, 160, 70)
_WRONG = (220, 30, 40)
_LABEL = (255, 214, 10)
_INSTANCES = (
    (66, 133, 244),
    (234, 88, 12),
    (20, 184, 166),
    (168, 85, 247),
    (236, 72, 153),
    (132, 204, 22),
)
"""Colours of detections, which take turns."""


def draw_masks(picture: Image.Image | None, masks: MaskPair) -> Image.Image:
    """Return a picture with its masks; without the picture where that has another shape.

    Instances have a colour for each detection, and a yellow outline for each object of the labels.
    Other masks have wrong pixels in red, and right ones of objects (not 0) in green.
    """
    height, width = masks.label.shape
    pixels = _grey(picture, (width, height))
    if masks.are_instances:
        _mark_instances(pixels, masks)
    else:
        _mark_pixels(pixels, masks)
    return Image.fromarray(pixels.astype(np.uint8))


def _mark_instances(pixels: Any, masks: MaskPair) -> None:
    colours = itertools.cycle(_INSTANCES)
    last = int(masks.found.max(initial=0))
    for number in range(1, last + 1):
        _tint(pixels, masks.found == number, next(colours))
    pixels[_outlines(masks.label)] = _LABEL


def _mark_pixels(pixels: Any, masks: MaskPair) -> None:
    is_counted = masks.label >= 0
    is_same = masks.label == masks.found
    is_object = masks.label > 0
    _tint(pixels, is_object & is_same, _RIGHT)
    _tint(pixels, is_counted & ~is_same, _WRONG)


def _outlines(numbers: Any) -> Any:
    """Return the pixels of objects (H x W) beside which another object or none begins."""
    padded = np.pad(numbers, 1)
    centre = padded[1:-1, 1:-1]
    beside = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    differs = np.zeros(numbers.shape, bool)
    for neighbour in beside:
        differs |= neighbour != centre
    return differs & (numbers > 0)


def _tint(pixels: Any, chosen: Any, colour: tuple[int, int, int]) -> None:
    """Mix a colour into chosen pixels of a picture (H x W x 3), in place."""
    pixels[chosen] = _KEPT * pixels[chosen] + _COLOURED * np.array(colour)


def _grey(picture: Image.Image | None, size: tuple[int, int]) -> Any:
    """Return a picture of this size without colours; even grey for one of another shape."""
    width, height = size
    if picture is None or not _have_one_shape(picture.size, size):
        return np.full((height, width, 3), 128.0)
    grey = picture.convert("L").convert("RGB")
    return np.array(grey.resize(size), np.float64)


def _have_one_shape(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Return whether two sizes have about the same ratio of their sides."""
    width, height = first
    other_width, other_height = second
    ratio = (width * other_height) / (height * other_width)
    return abs(ratio - 1) < 0.05
