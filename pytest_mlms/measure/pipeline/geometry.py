"""The way back from the model's input to the picture that it was made from.

The image steps of an input resize, cut and pad a picture. Each of these is a scale and an offset of
both axes, so that their sequence is one, too. A point of a picture lies between its pixels: the
left edge of the first pixel is 0, the right edge of the last one is the width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.steps import Crop, InputStep, Pad, Resize
from pytest_mlms.measure.pipeline.sizes import (
    Size,
    crop_window,
    pad_borders,
    padded_size,
    resized_size,
)

Array = NDArray[Any]


@dataclass(frozen=True)
class Geometry:
    """The places of a picture's points in what was made of it.

    A point x of the picture is at ``scale`` · x + ``offset``; both have a number for x and one for
    y. ``size`` is the height and width that the steps so far have led to.
    """

    size: tuple[int, int]
    scale: tuple[float, float] = (1.0, 1.0)
    offset: tuple[float, float] = (0.0, 0.0)

    def resized(self, height: int, width: int) -> Geometry:
        """Return the geometry after everything is resized to this size."""
        old_height, old_width = self.size
        by_x = width / old_width
        by_y = height / old_height
        scale = (self.scale[0] * by_x, self.scale[1] * by_y)
        offset = (self.offset[0] * by_x, self.offset[1] * by_y)
        return Geometry((height, width), scale, offset)

    def moved(self, top: int, left: int, height: int, width: int) -> Geometry:
        """Return the geometry of a part that begins at ``top`` and ``left``; below 0 is padding."""
        offset = (self.offset[0] - left, self.offset[1] - top)
        return Geometry((height, width), self.scale, offset)

    def to_picture(self, corners: Array) -> Array:
        """Return boxes (left, top, right, bottom; n x 4) in the pixels of the picture."""
        scale = np.array([*self.scale, *self.scale])
        offset = np.array([*self.offset, *self.offset])
        return np.asarray((corners - offset) / scale)


def geometry_of(steps: Sequence[InputStep], height: int, width: int) -> Geometry:
    """Return the geometry of an input's steps for a picture of this size.

    Raises DatasetError for a step that moves points in a way that isn't known here, and ValueError
    for one that can't be done for a picture of this size.
    """
    geometry = Geometry((height, width))
    for step in steps:
        if step.name in _IN_PLACE:
            continue
        if step.name not in _MOVES:
            problem = f"boxes can't be put back through step {step.name!r}"
            raise DatasetError(f"{problem}; resize, crop or pad instead")
        geometry = _MOVES[step.name](geometry, step.parameters)
    return geometry


def _resize(geometry: Geometry, parameters: Resize) -> Geometry:
    return geometry.resized(*resized_size(Size(*geometry.size), parameters))


def _crop(geometry: Geometry, parameters: Crop) -> Geometry:
    return geometry.moved(*crop_window(Size(*geometry.size), parameters))


def _pad(geometry: Geometry, parameters: Pad) -> Geometry:
    size = Size(*geometry.size)
    borders = pad_borders(size, parameters)
    return geometry.moved(-borders.top, -borders.left, *padded_size(size, borders))


_IN_PLACE = ("decode", "color_order", "layout", "normalize", "cast")
"""Steps that leave every pixel where it is."""

_MOVES: Mapping[str, Callable[[Geometry, Any], Geometry]] = {
    "resize": _resize,
    "crop": _crop,
    "pad": _pad,
}
