"""Records of the objects in a picture: those of its labels, and those that a model detects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.pipeline.selected import Selected

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
