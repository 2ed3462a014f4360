"""A person before backgrounds, with the mask of the person and the box of the face as labels.

The person is the astronaut of scikit-image, cut out along an outline drawn by hand; the backgrounds
are other pictures of it. Each picture has the person at another place and size, or mirrored.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from manifests.zoo.compose.coco import Box, CocoArchive, jpeg
from manifests.zoo.compose.packages import picture, zip_of

__all__ = ["compose_faces", "compose_masks"]

_OUTLINE = (
    *((30, 345), (52, 290), (78, 245), (100, 216), (116, 205), (113, 190), (122, 166), (150, 151)),
    *((182, 150), (181, 132), (163, 114), (153, 95), (155, 70), (166, 47), (190, 24), (216, 15)),
    *((246, 18), (275, 29), (291, 50), (299, 72), (299, 95), (286, 125), (270, 131), (262, 150)),
    *((257, 176), (283, 193), (300, 222), (303, 246), (325, 258), (342, 280), (358, 322)),
    *((361, 345),),
)
"""The outline of the person, as x and y in astronaut.png, above the helmet."""

_FACE = (178, 72, 276, 188)
"""The face: left, top, right and bottom."""

_BACKGROUNDS = ("gravel.png", "brick.png", "coffee.png", "grass.png", "rocket.jpg", "chelsea.png")
_FACES = 16  # pictures with boxes
_MASKS = 40  # pictures with masks
_SIZE = 256  # pixels of a picture
_SEED = 16
_QUALITY = 85  # of the JPEG files


@dataclass(frozen=True)
class _Scene:
    """A picture, the person's mask, and the face's left, top, width and height."""

    pixels: Image.Image
    mask: Image.Image
    face: Box


def compose_masks() -> bytes:
    """Return an archive of pictures and masks, with a labels.csv."""
    files = {}
    lines = ["file,label"]
    for number, scene in enumerate(_scenes(_MASKS)):
        photograph = f"{number:02}.jpg"
        mask = f"{number:02}.png"
        files[photograph] = jpeg(scene.pixels, _QUALITY)
        files[mask] = _png(scene.mask)
        lines.append(f"{photograph},{mask}")
    files["labels.csv"] = "\n".join(lines).encode()
    return zip_of(files)


def compose_faces() -> bytes:
    """Return an archive of pictures, with the boxes of faces in COCO's form in annotations.json."""
    archive = CocoArchive("face", _QUALITY)
    for number, scene in enumerate(_scenes(_FACES)):
        archive.add(number, scene.pixels, scene.face)
    return archive.content()


def _scenes(count: int) -> Iterator[_Scene]:
    rng = np.random.default_rng(_SEED)
    for number in range(count):
        name = _BACKGROUNDS[number % len(_BACKGROUNDS)]
        background = _background(name)
        scale = float(rng.uniform(0.45, 0.75))
        left = int(rng.integers(-10, 40))
        scene = _placed(background, scale, left)
        yield _mirrored(scene) if number % 2 else scene


def _background(name: str) -> Image.Image:
    pixels = picture(name)
    side = min(pixels.shape[:2])
    square = Image.fromarray(np.ascontiguousarray(pixels[:side, :side]))
    return square.resize((_SIZE, _SIZE), Image.Resampling.BILINEAR)


def _placed(background: Image.Image, scale: float, left: int) -> _Scene:
    """Return a scene with the person at the lower edge."""
    person = Image.fromarray(picture("astronaut.png"))
    cut = Image.new("L", person.size)
    draw = ImageDraw.Draw(cut)
    draw.polygon(_OUTLINE, fill=255)
    bottom = max(y for _, y in _OUTLINE)
    width = round(person.width * scale)
    height = round(bottom * scale)
    box = (0, 0, person.width, bottom)
    small = person.resize((width, height), Image.Resampling.BICUBIC, box)
    mask = cut.resize((width, height), Image.Resampling.BILINEAR, box)
    top = _SIZE - height
    background.paste(small, (left, top), mask)
    full = Image.new("L", (_SIZE, _SIZE))
    full.paste(mask, (left, top))
    is_person = [0] * 128 + [1] * 128  # by each value of the mask
    return _Scene(background, full.point(is_person), _face(scale, left, top))


def _face(scale: float, left: int, top: int) -> Box:
    """Return the box of the face of a person of this size at this place."""
    x1, y1, x2, y2 = (edge * scale for edge in _FACE)
    edges = (x1 + left, y1 + top, x2 - x1, y2 - y1)
    face_left, face_top, width, height = (round(edge, 1) for edge in edges)
    return face_left, face_top, width, height


def _mirrored(scene: _Scene) -> _Scene:
    flip = Image.Transpose.FLIP_LEFT_RIGHT
    pixels = scene.pixels.transpose(flip)
    mask = scene.mask.transpose(flip)
    left, top, width, height = scene.face
    mirrored_left = round(_SIZE - left - width, 1)
    return _Scene(pixels, mask, (mirrored_left, top, width, height))


def _png(image: Image.Image) -> bytes:
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()
