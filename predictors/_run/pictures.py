"""Pictures decoded by the Pillow (6.0 or later) of this interpreter, imported when it is used.

Only decoders of pictures are used: Pillow also knows formats whose readers run other programs, as
that of EPS runs Ghostscript.
"""

import io
from typing import Any, Sequence, Tuple

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The formats that are decoded, by Pillow's names."""

BITS_16 = ("I;16", "I;16L", "I;16B", "I;16N")
_SCALED_TO_16 = ("PNG", "PPM")
"""Formats of which Pillow may give grey values of 16 bits as mode I."""

ORIENTATION = 0x0112  # of EXIF
UPRIGHT = 1


def load_upright(image: Any, turn_upright: bool) -> Tuple[Any, bool]:
    """Return an opened picture with its pixels, and whether its grey values have 16 bits.

    With ``turn_upright`` it is turned as its EXIF orientation says.
    """
    from PIL import ImageOps

    image.load()
    has_16_bits = image.mode in BITS_16 or (image.mode == "I" and image.format in _SCALED_TO_16)
    if turn_upright and image.getexif().get(ORIENTATION, UPRIGHT) != UPRIGHT:
        image = ImageOps.exif_transpose(image)
    return image, has_16_bits


def with_8_bits(image: Any, has_16_bits: bool) -> Any:
    """Return a picture with 8 bits a channel; raises ValueError for values without a range.

    Of 16 bits it has the high byte of each grey value, as Pillow itself has it of coloured
    pictures. Pillow would make everything above 255 white. OpenCV and TensorFlow keep the high
    byte, too.
    """
    import numpy
    from PIL import Image

    if has_16_bits:
        values = numpy.asarray(image).astype(numpy.int32)
        return Image.fromarray((values >> 8).astype(numpy.uint8))
    if image.mode in ("I", "F"):
        problem = "pixels of 32 bits, Pillow's mode %r, have no range of their own" % image.mode
        raise ValueError(problem + "; convert the picture to 8 bits")
    return image


def decode(content: bytes, mode: str, turn_upright: bool, steps: Sequence[Sequence[Any]]) -> Any:
    """Return the pixels of an encoded picture in a mode (L, RGB), after some steps.

    A step is "resize", the width, the height and the method, or "crop" and the left, upper, right
    and lower edge.
    """
    import numpy
    from PIL import Image

    Image.init()
    Image.ID[:] = [name for name in Image.ID if name in FORMATS]  # Pillow 7 can't be asked for them
    image = with_8_bits(*load_upright(Image.open(io.BytesIO(content)), turn_upright))
    if image.mode != mode:
        image = image.convert(mode)
    methods = getattr(Image, "Resampling", Image)  # which Pillow has from 9.1 on
    for name, *values in steps:
        if name == "crop":
            image = image.crop(tuple(values))
        else:
            width, height, method = values
            image = image.resize((width, height), getattr(methods, method.upper()))
    return numpy.asarray(image)
