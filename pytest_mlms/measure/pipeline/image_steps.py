"""Steps that work on one image: decode, resize, crop and pad.

An encoded image is turned upright by its EXIF orientation. Between steps that Pillow does, an image
stays one of Pillow's, as each copy of its pixels takes time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.steps import Crop, Decode, Pad, Resize, check_channels
from pytest_mlms.measure.pipeline.pictures import decode_picture, picture_size
from pytest_mlms.measure.pipeline.resizing import resize_image
from pytest_mlms.measure.pipeline.sizes import Size, crop_window, pad_borders, resized_size

Array = NDArray[Any]
Pixels = Array | Image.Image
"""An image as an array, H x W x C, or as one of Pillow's in mode L or RGB."""


def as_arrays(values: list[Any]) -> list[Any]:
    """Return values with arrays instead of Pillow's images."""
    return [_as_array(value) if isinstance(value, Image.Image) else value for value in values]


def _as_array(image: Pixels) -> Array:
    return as_image(image) if isinstance(image, Image.Image) else image


def as_image(element: Any) -> Array:
    """Return an array as H x W x C; raises DatasetError for anything else."""
    if isinstance(element, bytes):
        raise DatasetError("the dataset has encoded images; begin the input's steps with 'decode'")
    array = np.asarray(element)
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim != 3:
        expected = "an image is height x width, or height x width x channels"
        raise DatasetError(f"{expected}; the dataset has {array.shape}")
    return array


def _decode(element: Any, parameters: Decode) -> Pixels:
    if isinstance(element, bytes):
        image = decode_picture(element, parameters.orientation == "exif")
    else:
        image = _open(element)
    mode = "L" if parameters.color == "L" else "RGB"
    if image.mode != mode:
        image = image.convert(mode)
    if parameters.color == "BGR":
        return reversed_channels(as_image(image))
    return image


def _open(element: Array) -> Image.Image:
    """Return an array as an image of Pillow."""
    array = np.asarray(element)
    if array.dtype != np.uint8:
        problem = f"an image to decode has elements of uint8, not {array.dtype}"
        raise ValueError(f"{problem}; leave the step out")
    pixels = as_image(array)
    if pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    return Image.fromarray(pixels)


def reversed_channels(images: Array) -> Array:
    """Return images with their last axis reversed: BGR for RGB."""
    return images[..., ::-1]


def original_size(element: Any, decode: Decode | None) -> Size:
    """Return the size of an element before any step but ``decode``; raises ValueError."""
    if isinstance(element, bytes):
        return Size(*picture_size(element, decode is not None and decode.orientation == "exif"))
    return _size_of(as_image(element))


def _size_of(image: Pixels) -> Size:
    if isinstance(image, Image.Image):
        return Size(image.height, image.width)
    return Size(image.shape[0], image.shape[1])


def _resize(image: Pixels, parameters: Resize) -> Pixels:
    size = resized_size(_size_of(image), parameters)
    if parameters.library != "pillow" or not isinstance(image, Image.Image):
        return resize_image(_as_array(image), size, parameters.library, parameters.method)
    if size == _size_of(image):
        return image
    resampling = Image.Resampling[parameters.method.upper()]
    return image.resize((size.width, size.height), resampling)


def _crop(image: Pixels, parameters: Crop) -> Pixels:
    window = crop_window(_size_of(image), parameters)
    bottom = window.top + window.height
    right = window.left + window.width
    if isinstance(image, Image.Image):
        return image.crop((window.left, window.top, right, bottom))
    return image[window.top : bottom, window.left : right]


def _pad(pixels: Pixels, parameters: Pad) -> Array:
    image = _as_array(pixels)
    borders = pad_borders(_size_of(image), parameters)
    widths = ((borders.top, borders.bottom), (borders.left, borders.right), (0, 0))
    if parameters.mode != "constant":
        return np.pad(image, widths, parameters.mode)
    channels = image.shape[2]
    check_channels(parameters, channels)
    height = borders.top + image.shape[0] + borders.bottom
    width = borders.left + image.shape[1] + borders.right
    padded = np.empty((height, width, channels), image.dtype)
    padded[:] = _fill(parameters, image.dtype)
    right = borders.left + image.shape[1]
    padded[borders.top : borders.top + image.shape[0], borders.left : right] = image
    return padded


def _fill(parameters: Pad, dtype: np.dtype[Any]) -> Array:
    """Return the values of a border in an image's type; raises ValueError where it hasn't them."""
    written = np.asarray(parameters.value)
    values = written.astype(dtype)
    if dtype.kind != "f" and (values != written).any():
        problem = f"value {list(parameters.value)} is none of {dtype}"
        raise ValueError(f"{problem}; write whole numbers of its range")
    return values


IMAGE_STEPS: dict[str, Callable[[Any, Any], Pixels]] = {
    "decode": _decode,
    "resize": _resize,
    "crop": _crop,
    "pad": _pad,
}
"""The function of each step: an element and the step's parameters to an image."""
