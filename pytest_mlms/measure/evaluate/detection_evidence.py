"""Evidence of detections: what was found, missed and wrong in each picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.evaluate.average_precision import Matches, coco_figures
from pytest_mlms.measure.evaluate.tasks.task import BoxMark, ClassCounts, Evidence, MaskPair

Array = NDArray[Any]


class _Cut(NamedTuple):
    """The objects found (N), wrong (N) and missed (N) in each picture, at one score."""

    score: float
    found: Array
    wrong: Array
    missed: Array


@dataclass(frozen=True, eq=False)
class DetectionEvidence(Evidence):
    """The matches of a dataset's detections.

    Attributes:
        matches: Of all pictures.
        boxes: Left, top, width and height of each detection, in pixels (D x 4).
        categories: The names of the categories, by index.
        prefix: Of the names of quantities.
        masks: Masks of the pictures where they differ most, by the number of the picture.
    """

    matches: Matches
    boxes: Array
    categories: Sequence[str]
    prefix: str = ""
    masks: Mapping[int, MaskPair] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.matches.size

    def figures(self, counts: Array) -> Mapping[str, Array]:
        """Return AP, AP50, AP75 and AR100 for R samples of the pictures (R each)."""
        found = coco_figures(self.matches, counts)
        return {f"{self.prefix}{name.lower()}": values for name, values in found.items()}

    @property
    def losses(self) -> Array:
        """1 - F1 of each picture (N): overlaps of at least 0.5, and scores of at least the cut.

        The cut is the score with the best F1 over all pictures.
        """
        cut = self._cut
        objects = 2 * cut.found + cut.wrong + cut.missed
        return np.where(objects == 0, 0.0, 1 - 2 * cut.found / np.maximum(objects, 1))

    def answers(self) -> Sequence[Any]:
        """Return how many objects of each picture are found, and how many detections are wrong."""
        return list(zip(self._cut.found.tolist(), self._cut.wrong.tolist(), strict=True))

    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Return what is found, wrong and missed in each picture, and its detections as text."""
        cut = self._cut
        return {
            "objects": (cut.found + cut.missed).tolist(),
            "found": cut.found.tolist(),
            "wrong": cut.wrong.tolist(),
            "missed": cut.missed.tolist(),
            "detections": self._texts(cut.score),
        }

    def by_class(self) -> Sequence[ClassCounts]:
        """Return the objects of each category that are found, and wrong detections, at the cut."""
        matches = self.matches
        size = len(self.categories)
        objects = np.zeros(size, np.int64)
        np.add.at(objects, matches.object_categories, matches.object_counts)
        is_shown = ~matches.ignored[:, 0] & (matches.scores >= self._cut.score)
        is_right = matches.found[:, 0]
        right = np.bincount(matches.categories[is_shown & is_right], minlength=size)
        wrong = np.bincount(matches.categories[is_shown & ~is_right], minlength=size)
        counts = zip(self.categories, objects.tolist(), right.tolist(), wrong.tolist(), strict=True)
        return [ClassCounts(*each) for each in counts]

    def boxes_on(self, index: int) -> Sequence[BoxMark]:
        """Return the detections of a picture with at least the score of the cut, best first."""
        matches = self.matches
        is_shown = (matches.images == index) & ~matches.ignored[:, 0]
        chosen = np.flatnonzero(is_shown & (matches.scores >= self._cut.score))
        marks = []
        for number in chosen[np.argsort(-matches.scores[chosen], kind="stable")].tolist():
            left, top, width, height = self.boxes[number].tolist()
            name = self.categories[matches.categories[number]]
            kind: Literal["right", "wrong"] = "right" if matches.found[number, 0] else "wrong"
            score = float(matches.scores[number])
            marks.append(BoxMark(kind, name, score, (left, top, width, height)))
        return marks

    def masks_on(self, index: int) -> MaskPair | None:
        """Return the pixels of the objects of a picture, and of as many detections."""
        return self.masks.get(index)

    def arrays(self) -> Mapping[str, Mapping[str, Array]]:
        """Return all detections: their picture, category, score and box."""
        matches = self.matches
        return {
            "detections.npz": {
                "input": matches.images,
                "category": matches.categories,
                "categories": np.array(self.categories),
                "score": matches.scores,
                "box": self.boxes,
            }
        }

    @cached_property
    def _cut(self) -> _Cut:
        matches = self.matches
        counted = np.flatnonzero(~matches.ignored[:, 0])
        scores = matches.scores[counted]
        right = matches.found[counted, 0]
        objects = np.zeros(matches.size, np.int64)
        np.add.at(objects, matches.object_images, matches.object_counts)
        score = _best_score(scores, right, int(objects.sum()))
        kept = scores >= score
        images = matches.images[counted]
        found = np.bincount(images[kept & right], minlength=matches.size)
        wrong = np.bincount(images[kept & ~right], minlength=matches.size)
        return _Cut(score, found, wrong, objects - found)

    def _texts(self, score: float) -> list[str]:
        """Return the detections of each picture that have at least this score, best first."""
        matches = self.matches
        texts: list[list[str]] = [[] for _ in range(matches.size)]
        for number in np.argsort(-matches.scores, kind="stable").tolist():
            if matches.scores[number] < score:
                break
            name = self.categories[matches.categories[number]]
            box = " ".join(f"{value:.0f}" for value in self.boxes[number])
            text = f"{name} {matches.scores[number]:.3f} [{box}]"
            texts[matches.images[number]].append(text)
        return ["; ".join(parts) for parts in texts]


def _best_score(scores: Array, right: Array, objects: int) -> float:
    """Return the score from which on the detections have the best F1 together.

    It is infinite without detections.
    """
    if not len(scores):
        return float("inf")
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(right[order])
    f1 = 2 * found / (np.arange(1, len(order) + 1) + objects)
    last_of_equals = np.append(np.diff(scores[order]) != 0, True)
    best = np.where(last_of_equals, f1, -1).argmax()
    return float(scores[order][best])
