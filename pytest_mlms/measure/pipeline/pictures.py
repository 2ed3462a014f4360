"""Encoded pictures to images of Pillow with 8 bits a channel.

Only decoders of pictures are used: Pillow also knows formats whose readers run other programs, as
that of EPS runs Ghostscript, and formats that nobody keeps a dataset in.
"""

from __future__ import annotations

import io
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

from pytest_mlms.manifest.steps import MOST_PIXELS
from pytest_mlms.provide.artifacts.lfs import POINTER_ADVICE, is_pointer

__all__ = ["FORMATS", "decode_label_image", "decode_mask", "decode_picture", "picture_size"]

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

    With ``turn_upright`` they are those of the picture turned as its EXIF orientation says.
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
