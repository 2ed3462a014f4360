"""Number plates at known places: rendered in Pillow's own font, and pasted into photographs.

They look as those of China, which the detector was trained for: white characters on blue.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from manifests.zoo.compose.coco import Box, CocoArchive
from manifests.zoo.compose.packages import picture

__all__ = ["compose_plates"]

_BACKGROUNDS = ("coffee.png", "rocket.jpg", "chelsea.png", "grass.png")
_COUNT = 12
_SIZES = ((320, 240), (240, 320), (288, 288))
"""Widths and heights of pictures."""
_SEED = 16
_QUALITY = 88  # of the JPEG files
_PLATE_WIDTH = 440  # millimetres, and pixels as it is drawn
_PLATE_HEIGHT = 140
_BLUE = (20, 60, 180)
_CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789"


def compose_plates() -> bytes:
    """Return an archive of pictures with a plate each, and the boxes in annotations.json."""
    rng = np.random.default_rng(_SEED)
    archive = CocoArchive("plate", _QUALITY)
    for number in range(_COUNT):
        background = _BACKGROUNDS[number % len(_BACKGROUNDS)]
        size = _SIZES[number % len(_SIZES)]
        photograph = Image.fromarray(picture(background))
        scene = photograph.resize(size, Image.Resampling.BICUBIC)
        box = _paste_plate(scene, rng)
        archive.add(number + 1, scene, box)
    return archive.content()


def _paste_plate(scene: Image.Image, rng: np.random.Generator) -> Box:
    """Return left, top, width and height of the plate that a picture has been given."""
    width = int(rng.integers(scene.width // 4, scene.width // 2))
    height = round(width * _PLATE_HEIGHT / _PLATE_WIDTH)
    left = int(rng.integers(scene.width - width))
    top = int(rng.integers(scene.height - height))
    plate = _drawn_plate(rng).resize((width, height), Image.Resampling.BICUBIC)
    scene.paste(plate, (left, top))
    return left, top, width, height


def _drawn_plate(rng: np.random.Generator) -> Image.Image:
    plate = Image.new("RGB", (_PLATE_WIDTH, _PLATE_HEIGHT), _BLUE)
    draw = ImageDraw.Draw(plate)
    frame = (5, 5, _PLATE_WIDTH - 6, _PLATE_HEIGHT - 6)
    draw.rectangle(frame, outline="white", width=4)
    indices = rng.integers(len(_CHARACTERS), size=7)
    text = "".join(_CHARACTERS[index] for index in indices)
    font = ImageFont.load_default(96)
    centre = (_PLATE_WIDTH // 2, _PLATE_HEIGHT // 2)
    draw.text(centre, text, fill="white", font=font, anchor="mm", stroke_width=3)
    return plate
