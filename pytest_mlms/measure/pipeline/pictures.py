"""Pictures of a dataset, with 8 bits a channel, and the steps on one: decode, resize, crop, pad."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from mlms_predictors._run.pictures import (
    BITS_16,
    FORMATS,
    ORIENTATION,
    UPRIGHT,
    load_upright,
    with_8_bits,
)
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.steps import MOST_PIXELS, Crop, Decode, Pad, Resize, check_channels
from pytest_mlms.measure.pipeline.geometry import (
    Method,
    Size,
    crop_window,
    pad_borders,
    resized_size,
)
from pytest_mlms.provide.artifacts.digest import POINTER_ADVICE, is_pointer


def resize_image(image: Array, size: Size, library: str, method: str) -> Array:
    """Return an image (H x W x C) resized to ``size``, as the method of that library does.

    TensorFlow's bilinear and area give float32, the others the type of the image, floats as
    float32.
    """
    if image.shape[:2] == size:
        return image
    if library == "pillow":
        return _as_whole_numbers(_resize_by_pillow(image, size, method), image.dtype)
    resized = _method(library, method)(image, size)
    return _as_whole_numbers(resized, image.dtype) if library == "opencv" else resized


def _method(library: str, method: str) -> Method:
    """Return the function that resizes as a library does, imported for manifests that name it."""
    from pytest_mlms.measure.pipeline import opencv_resizing, tensorflow_resizing

    methods = {
        "opencv": opencv_resizing.METHODS,
        "tensorflow": tensorflow_resizing.METHODS,
        "tensorflow1": tensorflow_resizing.METHODS_1,
    }
    return methods[library][method]


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


__all__ = [
    "FORMATS",
    "IMAGE_STEPS",
    "as_arrays",
    "as_image",
    "decode_label_image",
    "decode_mask",
    "decode_picture",
    "original_size",
    "picture_size",
    "reversed_channels",
]


_INDEXED = ("1", "L", "P", *BITS_16)
"""Modes of one value a pixel: of a palette its indices, otherwise grey."""
_EXACT = ("PNG", "GIF", "BMP", "TIFF", "PPM")
"""Formats that keep each value as it was written."""

_TOO_MANY_PIXELS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_LYING = (5, 6, 7, 8)  # orientations whose height is the stored width
_SHOWN_BYTES = 8  # of what is not an image
_REPLACE = "replace the file, or leave it out"


def decode_picture(data: bytes, turn_upright: bool) -> Image.Image:
    """Return the picture in an encoded file, with 8 bits a channel; raises ValueError.

    With ``turn_upright`` it is turned as its EXIF orientation says.
    """
    image = _open(data)
    try:
        image, has_16_bits = load_upright(image, turn_upright)
    except Exception as error:  # decoders raise anything for a damaged file
        reason = str(error) or type(error).__name__
        raise ValueError(f"{reason}; {_REPLACE}") from error
    found: Image.Image = with_8_bits(image, has_16_bits)
    return found


def picture_size(data: bytes, turn_upright: bool) -> tuple[int, int]:
    """Return height and width of the picture in a file, from its header; raises ValueError.

    With ``turn_upright`` the picture is turned as its EXIF orientation says.
    """
    image = _open(data)
    if turn_upright and image.getexif().get(ORIENTATION, UPRIGHT) in _LYING:
        return image.width, image.height
    return image.height, image.width


def decode_mask(data: bytes) -> NDArray[Any]:
    """Return the value of each pixel of a mask, H x W: a palette's index, or grey as written.

    Raises ValueError for a picture that isn't one, or whose format changes values.
    """
    image = _open(data)
    if image.format not in _EXACT:
        problem = f"{image.format} changes the values of pixels"
        raise ValueError(f"{problem}; save the mask as PNG")
    if image.mode not in _INDEXED:
        problem = f"its pixels are {image.mode}, and a mask has the number of a class in each"
        raise ValueError(f"{problem}; save it as PNG with a palette, or in grey")
    try:
        image.load()
        return np.array(image).astype(np.uint8 if image.mode == "1" else np.int32)
    except Exception as error:  # decoders raise anything for a damaged file
        reason = str(error) or type(error).__name__
        raise ValueError(f"{reason}; {_REPLACE}") from error


def decode_label_image(data: bytes) -> NDArray[Any]:
    """Return a picture as H x W x C, uint8: C is 1 for a grey one, otherwise 3 (RGB).

    It is turned upright. Raises ValueError.
    """
    image = decode_picture(data, turn_upright=True)
    is_grey = image.mode in ("1", "L")
    pixels = np.asarray(image.convert("L" if is_grey else "RGB"))
    return pixels[..., np.newaxis] if is_grey else pixels


def _open(data: bytes) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(_no_image(data)) from None
    except _TOO_MANY_PIXELS as error:
        reason, _, _ = str(error).partition(",")  # the rest suspects an attack
        raise ValueError(f"{reason}; make the picture smaller, or leave it out") from None
    except Exception as error:  # readers of headers raise anything, too
        raise ValueError(f"{error or type(error).__name__}; {_REPLACE}") from error
    if image.width * image.height > MOST_PIXELS:
        problem = f"{image.width} x {image.height} are more than {MOST_PIXELS:,} pixels"
        raise ValueError(f"{problem}; make the picture smaller, or leave it out")
    return image


def _no_image(data: bytes) -> str:
    if is_pointer(data):
        return f"it is {POINTER_ADVICE}"
    start = data[:_SHOWN_BYTES]
    known = ", ".join(FORMATS)
    problem = f"{len(data)} bytes, beginning {start!r}, are not an image of {known}"
    return f"{problem}; {_REPLACE}"


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
        array = np.asarray(element)
        if array.dtype != np.uint8:
            problem = f"an image to decode has elements of uint8, not {array.dtype}"
            raise ValueError(f"{problem}; leave the step out")
        pixels = as_image(array)
        if pixels.shape[2] == 1:
            pixels = pixels[..., 0]
        image = Image.fromarray(pixels)
    mode = "L" if parameters.color == "L" else "RGB"
    if image.mode != mode:
        image = image.convert(mode)
    if parameters.color == "BGR":
        return reversed_channels(as_image(image))
    return image


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
    dtype = image.dtype
    written = np.asarray(parameters.value)
    values = written.astype(dtype)
    if dtype.kind != "f" and (values != written).any():
        problem = f"value {list(parameters.value)} is none of {dtype}"
        raise ValueError(f"{problem}; write whole numbers of its range")
    padded[:] = values
    right = borders.left + image.shape[1]
    padded[borders.top : borders.top + image.shape[0], borders.left : right] = image
    return padded


IMAGE_STEPS: dict[str, Callable[[Any, Any], Pixels]] = {
    "decode": _decode,
    "resize": _resize,
    "crop": _crop,
    "pad": _pad,
}
"""The function of each step: an element and the step's parameters to an image."""
