"""Non-maximum suppression: of objects that overlap, the one with the best score."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["suppressed"]

Array = NDArray[Any]


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
    groups = None if classes is None else classes[order]
    areas = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
    open_boxes = np.arange(len(order))
    kept: list[int] = []
    while len(open_boxes) and len(kept) < most:
        best = int(open_boxes[0])
        kept.append(best)
        others = open_boxes[1:]
        overlaps = _overlaps(boxes[best], boxes[others], areas[best], areas[others])
        loses = overlaps > iou
        if groups is not None:
            loses &= groups[others] == groups[best]
        open_boxes = others[~loses]
    return np.asarray(order[kept])


def _overlaps(box: Array, others: Array, area: float, areas: Array) -> Array:
    """Return the intersection over union of a box with others; 0 where both are empty."""
    left_top = np.maximum(box[:2], others[:, :2])
    right_bottom = np.minimum(box[2:], others[:, 2:])
    sides = np.maximum(right_bottom - left_top, 0)
    shared = sides[:, 0] * sides[:, 1]
    union = area + areas - shared
    overlaps = np.zeros(len(others))
    np.divide(shared, union, out=overlaps, where=union > 0)
    return overlaps
