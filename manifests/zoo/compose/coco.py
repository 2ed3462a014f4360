"""Pictures with boxes, as an archive with a file in COCO's form."""

from __future__ import annotations

import io
import json
from typing import Any

from PIL import Image

from manifests.zoo.compose.packages import zip_of

__all__ = ["Box", "CocoArchive", "jpeg"]

Box = tuple[float, float, float, float]
"""Left, top, width and height."""

_CATEGORY = 1


class CocoArchive:
    """An archive of pictures with one box each, all of one category."""

    def __init__(self, category: str, quality: int) -> None:
        self._category = category
        self._quality = quality
        self._files: dict[str, bytes] = {}
        self._images: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []

    def add(self, image_id: int, image: Image.Image, box: Box) -> None:
        """Add a picture; it is named by its place."""
        name = f"{len(self._images):02}.jpg"
        self._files[name] = jpeg(image, self._quality)
        size = {"width": image.width, "height": image.height}
        self._images.append({"id": image_id, "file_name": name, **size})
        _, _, width, height = box
        annotation = {
            "id": len(self._images),
            "image_id": image_id,
            "category_id": _CATEGORY,
            "bbox": list(box),
            "area": width * height,
            "iscrowd": 0,
        }
        self._annotations.append(annotation)

    def content(self) -> bytes:
        """Return the archive, with its annotations.json."""
        table = {
            "images": self._images,
            "annotations": self._annotations,
            "categories": [{"id": _CATEGORY, "name": self._category}],
        }
        annotations = json.dumps(table, indent=1).encode()
        return zip_of({**self._files, "annotations.json": annotations})


def jpeg(image: Image.Image, quality: int) -> bytes:
    """Return an image as a JPEG file."""
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality)
    return data.getvalue()
