"""Records of the objects in a picture, labelled or detected, and non-maximum suppression.

Of objects that overlap, suppression leaves the one with the best score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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


Array = NDArray[Any]

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
