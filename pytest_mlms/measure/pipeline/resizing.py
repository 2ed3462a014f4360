"""Resizing of images as Pillow, OpenCV and TensorFlow compute it.

Pillow's filters widen when they shrink an image (they anti-alias). OpenCV's and TensorFlow's
bilinear reads four pixels whatever the scale, and their area averages what a pixel covers. Pillow
itself does the first; the others are written out in numpy, a file for each library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from pytest_mlms.measure.pipeline import opencv_resizing, tensorflow_resizing
from pytest_mlms.measure.pipeline.geometry import Size
from pytest_mlms.measure.pipeline.interpolation import Array, Method

_METHODS: Mapping[str, Mapping[str, Method]] = {
    "opencv": opencv_resizing.METHODS,
    "tensorflow": tensorflow_resizing.METHODS,
    "tensorflow1": tensorflow_resizing.METHODS_1,
}


def resize_image(image: Array, size: Size, library: str, method: str) -> Array:
    """Return an image (H x W x C) resized to ``size``, as the method of that library does.

    TensorFlow's bilinear and area give float32, the others the type of the image, floats as
    float32.
    """
    if image.shape[:2] == size:
        return image
    if library == "pillow":
        return _as_whole_numbers(_resize_by_pillow(image, size, method), image.dtype)
    resized = _METHODS[library][method](image, size)
    return _as_whole_numbers(resized, image.dtype) if library == "opencv" else resized


def _as_whole_numbers(resized: Array, kind: np.dtype[Any]) -> Array:
    """Return a resized image in the type of the image, if that has whole numbers."""
    if kind.kind not in "iu" or resized.dtype == kind:
        return resized
    limits = np.iinfo(kind)
    return np.clip(np.rint(resized.astype(np.float64)), limits.min, limits.max).astype(kind)


def _resize_by_pillow(image: Array, size: Size, method: str) -> Array:
    channels = image.shape[2]
    if image.dtype == np.uint8 and channels == 3:
        return _resize_pixels(image, size, method)
    kind = np.uint8 if image.dtype == np.uint8 else np.float32
    resized = []
    for channel in np.moveaxis(image, 2, 0):
        pixels = np.ascontiguousarray(channel, dtype=kind)
        resized.append(_resize_pixels(pixels, size, method))
    return np.stack(resized, axis=2)


def _resize_pixels(pixels: Array, size: Size, method: str) -> Array:
    """Return H x W values, or H x W x RGB, in another size."""
    image = Image.fromarray(pixels)
    resampling = Image.Resampling[method.upper()]
    return np.asarray(image.resize((size.width, size.height), resampling))
