"""Photographs at half their size, with those of full size as labels, for super-resolution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from manifests.zoo.compose.packages import picture

__all__ = ["compose"]

Pixels = NDArray[np.uint8]

_CROPS = {
    "astronaut.png": ((20, 150), (170, 60)),
    "chelsea.png": ((60, 130), (120, 240)),
    "coffee.png": ((60, 200), (160, 330)),
    "rocket.jpg": ((60, 250), (200, 280)),
}
"""Picture -> top and left of its crops."""

_SIZE = 160  # pixels of a crop


def compose(border: int) -> dict[str, NDArray[np.generic]]:
    """Return photographs at half size as image, with ``border`` pixels more on all sides.

    The label is the photograph of twice the size: N x 160 x 160 x 3. The model takes the border
    away, as its convolutions have no padding.
    """
    small = []
    large = []
    for name, corners in _CROPS.items():
        for top, left in corners:
            crop = picture(name)[top : top + _SIZE, left : left + _SIZE]
            small.append(_half(crop, border))
            large.append(crop)
    return {"image": np.array(small), "label": np.array(large)}


def _half(crop: Pixels, border: int) -> Pixels:
    """Return a crop at half its size, its edges repeated around it."""
    size = _SIZE // 2
    half = Image.fromarray(crop).resize((size, size), Image.Resampling.BOX)
    around = ((border, border), (border, border), (0, 0))
    return np.pad(np.asarray(half), around, mode="edge")
