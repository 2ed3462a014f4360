"""Objects in a picture, labelled or detected: boxes, masks, and non-maximum suppression."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.pipeline.geometry import Geometry

Values = Sequence[Any] | NDArray[Any]


class Selected(Sequence[Any]):
    """The values at some numbers of a sequence, each read or computed when it is asked for."""

    def __init__(self, values: Values, numbers: Values) -> None:
        self._values = values
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return self._values[self._numbers[index]]


RunLengths = dict[str, Any]
"""A mask as pycocotools encodes it: ``size`` (height, width) and ``counts``, bytes."""


@dataclass(frozen=True, eq=False)
class LabelledObjects:
    """The n labelled objects of a picture.

    Attributes:
        image_id: The picture's number in the file of labels.
        height: Of the picture, in pixels.
        width: Of the picture, in pixels.
        boxes: Left, top, width and height of each object, in pixels (n x 4).
        categories: The index of each object's category, in the order of their ids (n).
        areas: The area of each object, in pixels (n).
        crowds: Whether it stands for many objects, which may be detected or not (n).
        segmentations: The polygons or run lengths of each object as the file has them (n).
        records: Where the file has each object, for messages (n).
    """

    image_id: int
    height: int
    width: int
    boxes: Array
    categories: Array
    areas: Array
    crowds: Array
    segmentations: Sequence[Any] = ()
    records: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.boxes)


@dataclass(frozen=True, eq=False)
class Detections:
    """The n objects that a model detects in a picture.

    Attributes:
        boxes: Left, top, right and bottom of each object (n x 4).
        scores: How sure the model is, in any unit; larger is surer (n).
        classes: The model's number of each object's class (n).
        masks: The mask of each object, values or run lengths; None for a model without masks.
    """

    boxes: Array
    scores: Array
    classes: Array
    masks: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.boxes)

    def take(self, chosen: Array) -> Detections:
        """Return the detections of these indices, in their order."""
        masks = None if self.masks is None else Selected(self.masks, chosen)
        return Detections(self.boxes[chosen], self.scores[chosen], self.classes[chosen], masks)


def boxes_of_corners(corners: Array) -> Array:
    """Return left, top, width and height for left, top, right and bottom; no side is below 0."""
    sides = np.maximum(corners[:, 2:] - corners[:, :2], 0)
    return np.concatenate([corners[:, :2], sides], axis=1)


_LEFT_TOP = np.s_[..., :2]
_RIGHT_BOTTOM = np.s_[..., 2:]


def suppressed(
    corners: Array, scores: Array, iou: float, most: int, classes: Array | None = None
) -> Array:
    """Return the indices of the boxes that are kept, best first, at most ``most``.

    A box (left, top, right, bottom; n x 4) is left out where its intersection over union with a
    better one that is kept is more than ``iou``, as in torchvision.ops.nms and cv2.dnn.NMSBoxes.
    With ``classes`` (n) only boxes of one class compete. Of equal scores the first is the better.
    """
    order = np.argsort(-scores, kind="stable")
    boxes = corners[order].astype(np.float64)
    areas = _areas(boxes)
    groups = None if classes is None else classes[order]
    rivals = np.arange(len(order))
    kept: list[int] = []
    while len(rivals) and len(kept) < most:
        best = int(rivals[0])
        kept.append(best)
        rivals = rivals[1:]
        shared = _shared_areas(boxes[best], boxes[rivals])
        union = areas[best] + areas[rivals] - shared
        loses = _ratios(shared, union) > iou
        if groups is not None:
            loses &= groups[rivals] == groups[best]
        rivals = rivals[~loses]
    return np.asarray(order[kept])


def _areas(boxes: Array) -> Array:
    sides = np.maximum(boxes[_RIGHT_BOTTOM] - boxes[_LEFT_TOP], 0)
    return np.asarray(sides.prod(axis=1))


def _shared_areas(box: Array, others: Array) -> Array:
    """Return the areas of the intersections of a box (4) with others (n x 4)."""
    left_top = np.maximum(box[_LEFT_TOP], others[_LEFT_TOP])
    right_bottom = np.minimum(box[_RIGHT_BOTTOM], others[_RIGHT_BOTTOM])
    sides = np.maximum(right_bottom - left_top, 0)
    width, height = sides.T
    return np.asarray(width * height)


def _ratios(shared: Array, union: Array) -> Array:
    """Return the intersections over the unions (n each); 0 where a union is empty."""
    ratios = np.zeros(len(shared))
    np.divide(shared, union, out=ratios, where=union > 0)
    return ratios


_SLACK = 1.0  # pixels that a polygon may be beyond its picture
_LEAST_NUMBERS = 6  # of a polygon, which has 3 points


def check_segmentation(segmentation: Any, height: int, width: int) -> None:
    """Raise ValueError for what is no mask of a picture of this size.

    pycocotools reads beyond its memory where run lengths are more than the picture.
    """
    if segmentation is None:
        raise ValueError("has no segmentation; write polygons or run lengths")
    if isinstance(segmentation, dict):
        _check_run_lengths(segmentation, height, width)
    elif isinstance(segmentation, list) and segmentation:
        for number, polygon in enumerate(segmentation):
            try:
                _check_polygon(polygon, height, width)
            except ValueError as error:
                raise ValueError(f"polygon {number} {error}") from None
    else:
        raise ValueError(f"segmentation is {str(segmentation)[:40]}; write polygons or run lengths")


def _check_polygon(polygon: Any, height: int, width: int) -> None:
    advice = "write x, y of 3 points or more"
    try:
        numbers = np.array(polygon, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"is no list of numbers; {advice}") from None
    if numbers.ndim != 1 or numbers.size < _LEAST_NUMBERS or numbers.size % 2:
        raise ValueError(f"has the shape {numbers.shape}; {advice}")
    points = numbers.reshape(-1, 2)
    is_inside = (points >= -_SLACK) & (points <= np.array([width, height]) + _SLACK)
    if not is_inside.all():  # also for NaN
        is_outside = ~is_inside.all(axis=1)
        first = points[is_outside][0].tolist()
        raise ValueError(f"has the point {first} outside of the {width} x {height} pixels")


def _check_run_lengths(segmentation: dict[Any, Any], height: int, width: int) -> None:
    size = segmentation.get("size")
    if size != [height, width]:
        raise ValueError(f"has run lengths of the size {size}, and the picture [{height}, {width}]")
    counts = segmentation.get("counts")
    if isinstance(counts, str):
        counts = list(_uncompressed(counts))
    if not isinstance(counts, list) or not all(type(count) is int for count in counts):
        raise ValueError("has run lengths that are no list of whole numbers, nor a text")
    if min(counts, default=0) < 0 or sum(counts) != height * width:
        found = f"has run lengths of {sum(counts):,} pixels"
        raise ValueError(f"{found}, and the picture {height * width:,}; encode the mask again")


def _uncompressed(text: str) -> Iterator[int]:
    """Yield the run lengths in COCO's text: 5 bits a character, from the third on differences.

    pycocotools' rleFrString reads the format.
    """
    before = [0, 0]
    value = 0
    bits = 0
    number = 0
    for character in text:
        code = ord(character) - 48
        if not 0 <= code < 64:
            raise ValueError(f"has run lengths with the character {character!r}; encode them again")
        value |= (code & 31) << bits
        bits += 5
        if code & 32:
            continue
        if code & 16:
            value -= 1 << bits
        count = value + (before[0] if number > 2 else 0)
        yield count
        before = [before[1], count]
        value = 0
        bits = 0
        number += 1
    if bits:
        raise ValueError("has run lengths that end within a number; encode them again")


def run_lengths_of(segmentation: Any, height: int, width: int) -> RunLengths:
    """Return a mask of a COCO file, which is checked, as run lengths."""
    from pycocotools import mask

    if isinstance(segmentation, list):
        return dict(mask.merge(mask.frPyObjects(segmentation, height, width)))
    if isinstance(segmentation["counts"], list):
        return dict(mask.frPyObjects(segmentation, height, width))
    return dict(segmentation)


def encode_mask(pixels: NDArray[np.bool_]) -> RunLengths:
    """Return a mask (height x width) as run lengths."""
    from pycocotools import mask

    return dict(mask.encode(np.asfortranarray(pixels, dtype=np.uint8)))


def union(masks: Sequence[RunLengths]) -> RunLengths:
    """Return the pixels that any of some masks has, of one size."""
    from pycocotools import mask

    return dict(mask.merge(list(masks)))


def overlap(first: RunLengths, second: RunLengths) -> float:
    """Return the intersection over union of two masks."""
    from pycocotools import mask

    return float(mask.iou([first], [second], [False])[0, 0])


def decode_mask(run_lengths: RunLengths) -> NDArray[np.uint8]:
    """Return the pixels of a mask (height x width), 0 and 1."""
    from pycocotools import mask

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of numpy, about pycocotools' arrays
        return np.asarray(mask.decode(run_lengths))


def mask_in_picture(
    values: Array,
    threshold: float,
    size: tuple[int, int],
    geometry: Geometry,
    box: Sequence[float] | None = None,
) -> NDArray[np.bool_]:
    """Return the pixels of a picture that a model's mask has (height x width).

    The mask's ``values`` are for all of the model's input, or for a ``box`` of it (left, top,
    right, bottom). They are interpolated bilinearly to ``size``, that of the picture. What is at
    least ``threshold`` belongs to the mask; nothing does beyond the values.
    """
    if box is None:
        height, width = geometry.size
        box = (0.0, 0.0, width, height)
    affine = _affine(values.shape, geometry, box)
    if affine is None:
        return np.zeros(size, bool)
    moved = _transformed(values, size, affine, Image.Resampling.BILINEAR)
    covered = _transformed(np.ones_like(values), size, affine, Image.Resampling.NEAREST)
    return np.asarray((moved >= threshold) & (covered > 0))


def _affine(
    shape: tuple[int, ...], geometry: Geometry, box: Sequence[float]
) -> tuple[float, ...] | None:
    """Return the coefficients that lead from a picture's pixels to a mask's of this shape.

    Pillow's Image.Transform.AFFINE takes them; None for a box without an area.
    """
    left, top, right, bottom = box
    if not (right > left and bottom > top):
        return None
    rows, columns = shape
    by_x = columns / (right - left)
    by_y = rows / (bottom - top)
    scale_x, scale_y = geometry.scale
    offset_x, offset_y = geometry.offset
    to_x = (scale_x * by_x, 0.0, (offset_x - left) * by_x)
    to_y = (0.0, scale_y * by_y, (offset_y - top) * by_y)
    affine = (*to_x, *to_y)
    return affine if all(map(math.isfinite, affine)) else None


def _transformed(
    values: Array, size: tuple[int, int], affine: tuple[float, ...], method: Image.Resampling
) -> Array:
    """Return values in the pixels of a picture of this size (height x width)."""
    height, width = size
    image = Image.fromarray(np.ascontiguousarray(values, dtype=np.float32))
    return np.asarray(image.transform((width, height), Image.Transform.AFFINE, affine, method))


def pixels_in(box: Sequence[float], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pixels whose centre is in a box of a picture of this size (height x width)."""
    left, top, right, bottom = box
    x = np.arange(size[1]) + 0.5
    y = np.arange(size[0]) + 0.5
    columns = (x >= left) & (x < right)
    rows = (y >= top) & (y < bottom)
    return np.asarray(rows[:, None] & columns[None, :])
