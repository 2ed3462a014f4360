"""Pictures and sounds of inputs for people to look at, before any step but the turn upright."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.pipeline.dataset import Dataset
from pytest_mlms.measure.pipeline.pictures import as_image, decode_picture

COLOURS = (
    (66, 133, 244),
    (234, 88, 12),
    (20, 184, 166),
    (168, 85, 247),
    (236, 72, 153),
    (132, 204, 22),
)
"""Colours of objects and classes on pictures, which take turns."""

_DARK = 64  # shade: pictures without a lighter pixel are stretched


def picture_of(dataset: Dataset, index: int) -> Image.Image | None:
    """Return the picture of an element; None for one that is none, or can't be read."""
    for spec in dataset.inputs:
        if spec.type == "image":
            decode = spec.steps[0].decode if spec.steps else None
            element = dataset.elements[spec.name][index]
            return _opened(element, decode is not None and decode.orientation == "exif")
    return None


def _opened(element: Any, upright: bool) -> Image.Image | None:
    """Return an element as a picture; None for what can't be shown as one."""
    try:
        if isinstance(element, bytes):
            return decode_picture(element, upright)
        return image_of(as_image(element))
    except (MlmsError, ValueError, TypeError):
        return None


def image_of(pixels: Any) -> Image.Image | None:
    """Return an array of H x W x C, or C x H x W, as a picture that uses all shades of grey.

    None for one of other channels, and for values that are not finite.
    """
    channels = (1, 3)
    if pixels.shape[2] not in channels and pixels.shape[0] in channels:
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.shape[2] not in channels or not np.isfinite(pixels).all():
        return None
    if pixels.dtype != np.uint8 or pixels.max() < _DARK:
        pixels = _stretched(pixels)
    if pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    return Image.fromarray(pixels)


def _stretched(pixels: Any) -> Any:
    """Return pixels from 0, the least, to 255, the greatest."""
    least = pixels.min()
    span = float(pixels.max() - least) or 1.0
    shades = 255 * (pixels.astype(np.float64) - least) / span
    return shades.astype(np.uint8)
