"""A dataset of faces that is composed here, as no labelled one comes with a package.

Heads of one photograph, NASA's of the astronaut Eileen Collins (public domain), are pasted into
other pictures of scikit-image at known places, in several sizes, mirrored and darker. The box of
the face in the photograph was measured by hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter

__all__ = ["compose_faces"]

_HEAD = (145, 8, 305, 196)  # left, top, right, bottom in the photograph
_FACE = (178, 72, 271, 177)
_BACKGROUNDS = ("coffee", "chelsea", "rocket", "hubble_deep_field", "immunohistochemistry")


class _Pasted(NamedTuple):
    """A face in a picture: left, top, width and height."""

    box: tuple[float, float, float, float]


def compose_faces(folder: Path, pictures: int, seed: int = 0, category: str = "face") -> None:
    """Write a COCO file, labels.json, and pictures with up to three faces each."""
    import skimage.data

    generator = np.random.default_rng(seed)
    photograph = Image.fromarray(skimage.data.astronaut())
    folder.mkdir(parents=True, exist_ok=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number in range(pictures):
        name = _BACKGROUNDS[number % len(_BACKGROUNDS)]
        picture = _background(Image.fromarray(getattr(skimage.data, name)()), generator)
        for pasted in _paste_faces(picture, photograph, generator):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number + 1,
                    "category_id": 1,
                    "bbox": list(pasted.box),
                    "area": pasted.box[2] * pasted.box[3],
                    "iscrowd": 0,
                }
            )
        file = f"{number:03}.jpg"
        picture.save(folder / file, quality=92)
        size = {"width": picture.width, "height": picture.height}
        images.append({"id": number + 1, "file_name": file, **size})
    categories = [{"id": 1, "name": category}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "labels.json").write_text(json.dumps(content, indent=1))


def _background(picture: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Return a wide or a high picture of some 480 pixels."""
    shape = [(480, 320), (320, 480), (480, 360), (400, 400)][int(generator.integers(4))]
    return picture.convert("RGB").resize(shape)


def _paste_faces(
    picture: Image.Image, photograph: Image.Image, generator: np.random.Generator
) -> Iterator[_Pasted]:
    """Paste heads beside each other; there is a third of the width for each."""
    count = int(generator.integers(1, 4)) if picture.width > picture.height else 1
    left_of = generator.permutation(3)[:count]
    for place in left_of:
        height = int(generator.integers(90, 170))
        head, scale = _head(photograph, height)
        mirrored = bool(generator.integers(2))
        if mirrored:
            head = head.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        head = ImageEnhance.Brightness(head).enhance(float(generator.uniform(0.7, 1.1)))
        free = max(1, picture.width // 3 - head.width)
        left = int(place) * picture.width // 3 + int(generator.integers(free))
        left = min(left, picture.width - head.width)
        top = int(generator.integers(picture.height - height))
        picture.paste(head, (left, top), _oval(head.size))
        yield _Pasted(_face_box(left, top, scale, head.width, mirrored))


def _head(photograph: Image.Image, height: int) -> tuple[Image.Image, float]:
    head = photograph.crop(_HEAD)
    scale = height / head.height
    width = round(head.width * scale)
    return head.resize((width, height), Image.Resampling.BICUBIC), scale


def _oval(size: tuple[int, int]) -> Image.Image:
    mask = Image.new("L", size)
    ImageDraw.Draw(mask).ellipse((0, 0, size[0] - 1, size[1] - 1), fill=255)
    return mask.filter(ImageFilter.GaussianBlur(2))


def _face_box(
    left: int, top: int, scale: float, width: int, mirrored: bool
) -> tuple[float, float, float, float]:
    face_left = (_FACE[0] - _HEAD[0]) * scale
    face_width = (_FACE[2] - _FACE[0]) * scale
    if mirrored:
        face_left = width - face_left - face_width
    face_top = (_FACE[1] - _HEAD[1]) * scale
    face_height = (_FACE[3] - _FACE[1]) * scale
    box = (left + face_left, top + face_top, face_width, face_height)
    return tuple(round(value, 2) for value in box)  # type: ignore[return-value]
