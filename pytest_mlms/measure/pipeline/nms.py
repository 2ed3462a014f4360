"""Non-maximum suppression: of objects that overlap, the one with the best score."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

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
