"""Encoded pictures to images of Pillow with 8 bits a channel.

Only decoders of pictures are used: Pillow also knows formats whose readers run other programs, as
that of EPS runs Ghostscript, and formats that nobody keeps a dataset in.
"""

from __future__ import annotations

import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from pytest_mlms.artifacts.lfs import POINTER_ADVICE, is_pointer
from pytest_mlms.manifest.steps import MOST_PIXELS

__all__ = ["FORMATS", "decode_picture"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The formats that are decoded, by Pillow's names."""

_BITS_16 = ("I;16", "I;16L", "I;16B", "I;16N")
_SCALED_TO_16 = ("PNG", "PPM")
"""Formats of which Pillow may give grey values of 16 bits as mode I."""

_TOO_MANY_PIXELS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_ORIENTATION = 0x0112  # of EXIF
_UPRIGHT = 1
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
