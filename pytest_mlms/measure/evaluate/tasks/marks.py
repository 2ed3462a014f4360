"""Marks on pictures: what a model found in an input, for people to look at."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_LONGEST_SIDE = 128  # of a mask that is kept, in pixels


class BoxMark(NamedTuple):
    """A box on a picture: left, top, width and height in its pixels.

    ``kind`` is "label" for an object of the labels, else whether the detection is right or wrong.
    """

    kind: Literal["label", "right", "wrong"]
    name: str
    score: float | None
    box: tuple[float, float, float, float]


class ClassCounts(NamedTuple):
    """The objects or pixels of a class: those of the labels, and right and wrong ones found."""

    name: str
    labelled: int
    right: int
    wrong: int


class MaskPair(NamedTuple):
    """The class of each pixel (H x W) by the label and by the model; label -1 doesn't count.

    Of instances it is the number of the object and of the detection, from 1 on, and 0 elsewhere.
    """

    label: Array
    found: Array
    are_instances: bool = False


class WorstMasks:
    """Small copies of the masks with the largest losses, at most ``most`` of them."""

    def __init__(self, most: int = 12) -> None:
        self._most = most
        self._heap: list[tuple[float, int, MaskPair]] = []

    def offer(self, loss: float, index: int, masks: MaskPair) -> None:
        """Keep the masks of an input where its loss is among the largest; volumes are not kept."""
        if masks.label.ndim != 2 or not self.takes(loss):
            return
        small = masks._replace(label=_small(masks.label), found=_small(masks.found))
        heapq.heappush(self._heap, (loss, -index, small))
        if len(self._heap) > self._most:
            heapq.heappop(self._heap)

    def takes(self, loss: float) -> bool:
        """Return whether a loss is among the largest so far."""
        is_full = len(self._heap) == self._most
        return loss > 0 and not (is_full and loss <= self._heap[0][0])

    def kept(self) -> Mapping[int, MaskPair]:
        """Return the masks by the number of their input."""
        return {-number: masks for _, number, masks in self._heap}


def _small(mask: Array) -> Array:
    """Return every n-th pixel, so that a mask of any size takes few kilobytes."""
    step = -(-max(mask.shape) // _LONGEST_SIDE)
    return np.ascontiguousarray(mask[::step, ::step], dtype=np.int32)
