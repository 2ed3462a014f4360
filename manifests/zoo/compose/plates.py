"""Number plates at known places: rendered in Pillow's own font, and pasted into photographs.

They look as those of China, which the detector was trained for: white characters on blue.
"""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from manifests.zoo.compose.packages import picture, zip_of

__all__ = ["compose_plates"]

_BACKGROUNDS = ("coffee.png", "rocket.jpg", "chelsea.png", "grass.png")
_COUNT = 12
_SIZES = ((320, 240), (240, 320), (288, 288))
"""Widths and heights of pictures."""
_SEED = 16
_QUALITY = 88  # of the JPEG files
_PLATE = (440, 140)  # millimetres, and pixels as it is drawn
_BLUE = (20, 60, 180)
_CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ0123456789"


def compose_plates() -> bytes:
    """Return an archive of pictures with a plate each, and the boxes in annotations.json."""
    rng = np.random.default_rng(_SEED)
    files = {}
    images = []
    annotations = []
    for number in range(_COUNT):
        photograph = Image.fromarray(picture(_BACKGROUNDS[number % len(_BACKGROUNDS)]))
        scene = photograph.resize(_SIZES[number % len(_SIZES)], Image.Resampling.BICUBIC)
        box = _paste_plate(scene, rng)
        name = f"{number:02}.jpg"
        files[name] = _jpeg(scene)
        image_id = number + 1
        size = {"width": scene.width, "height": scene.height}
        images.append({"id": image_id, "file_name": name, **size})
        annotations.append(_annotation(image_id, box))
    categories = [{"id": 1, "name": "plate"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    files["annotations.json"] = json.dumps(content, indent=1).encode()
    return zip_of(files)


def _annotation(image_id: int, box: list[int]) -> dict[str, Any]:
    area = box[2] * box[3]
    found = {"id": image_id, "image_id": image_id, "category_id": 1, "bbox": box}
    return {**found, "area": area, "iscrowd": 0}


def _paste_plate(scene: Image.Image, rng: np.random.Generator) -> list[int]:
    """Return left, top, width and height of the plate that a picture has been given."""
    width = int(rng.integers(scene.width // 4, scene.width // 2))
    height = round(width * _PLATE[1] / _PLATE[0])
    left = int(rng.integers(scene.width - width))
    top = int(rng.integers(scene.height - height))
    plate = _drawn_plate(rng).resize((width, height), Image.Resampling.BICUBIC)
    scene.paste(plate, (left, top))
    return [left, top, width, height]


def _drawn_plate(rng: np.random.Generator) -> Image.Image:
    plate = Image.new("RGB", _PLATE, _BLUE)
    draw = ImageDraw.Draw(plate)
    draw.rectangle((5, 5, _PLATE[0] - 6, _PLATE[1] - 6), outline="white", width=4)
    text = "".join(_CHARACTERS[index] for index in rng.integers(len(_CHARACTERS), size=7))
    font = ImageFont.load_default(96)
    centre = (_PLATE[0] // 2, _PLATE[1] // 2)
    draw.text(centre, text, fill="white", font=font, anchor="mm", stroke_width=3)
    return plate


def _jpeg(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=_QUALITY)
    return data.getvalue()
