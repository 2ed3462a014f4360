"""Encoded pictures to images of Pillow with 8 bits a channel.

Only decoders of pictures are used: Pillow also knows formats whose readers run other programs, as
that of EPS runs Ghostscript, and formats that nobody keeps a dataset in.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from pytest_mlms.artifacts.lfs import POINTER_ADVICE, is_pointer
from pytest_mlms.manifest.steps import MOST_PIXELS

__all__ = ["FORMATS", "decode_label_image", "decode_mask", "decode_picture", "picture_size"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The formats that are decoded, by Pillow's names."""

_BITS_16 = ("I;16", "I;16L", "I;16B", "I;16N")
_SCALED_TO_16 = ("PNG", "PPM")
"""Formats of which Pillow may give grey values of 16 bits as mode I."""

_INDEXED = ("1", "L", "P", *_BITS_16)
"""Modes of one value a pixel: of a palette its indices, otherwise grey."""
_EXACT = ("PNG", "GIF", "BMP", "TIFF", "PPM")
"""Formats that keep each value as it was written."""

_TOO_MANY_PIXELS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_ORIENTATION = 0x0112  # of EXIF
_UPRIGHT = 1
_LYING = (5, 6, 7, 8)  # orientations whose height is the stored width
_SHOWN_BYTES = 8  # of what is not an image
_REPLACE = "replace the file, or leave it out"


def decode_picture(data: bytes, turn_upright: bool) -> Image.Image:
    """Return the picture in an encoded file, with 8 bits a channel; raises ValueError.

    With ``turn_upright`` it is turned as its EXIF orientation says.
    """
    image = _open(data)
    try:
        image.load()
        bits_16 = _has_16_bits(image)
        if turn_upright and image.getexif().get(_ORIENTATION, _UPRIGHT) != _UPRIGHT:
            image = ImageOps.exif_transpose(image)
    except Exception as error:  # decoders raise anything for a damaged file
        reason = str(error) or type(error).__name__
        raise ValueError(f"{reason}; {_REPLACE}") from error
    if bits_16:
        return _high_bytes(image)
    if image.mode in ("I", "F"):
        problem = f"pixels of 32 bits, Pillow's mode {image.mode!r}, have no range of their own"
        raise ValueError(f"{problem}; convert the picture to 8 bits")
    return image


def picture_size(data: bytes, turn_upright: bool) -> tuple[int, int]:
    """Return height and width of the picture in a file, from its header; raises ValueError.

    With ``turn_upright`` they are those of the picture turned as its EXIF orientation says.
    """
    image = _open(data)
    if turn_upright and image.getexif().get(_ORIENTATION, _UPRIGHT) in _LYING:
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


def _has_16_bits(image: Image.Image) -> bool:
    if image.mode in _BITS_16:
        return True
    return image.mode == "I" and image.format in _SCALED_TO_16


def _high_bytes(image: Image.Image) -> Image.Image:
    """Return the high byte of each grey value, as Pillow itself has it of coloured pictures.

    Pillow would make everything above 255 white. OpenCV and TensorFlow keep the high byte, too.
    """
    values = np.asarray(image).astype(np.int32)
    return Image.fromarray((values >> 8).astype(np.uint8))
