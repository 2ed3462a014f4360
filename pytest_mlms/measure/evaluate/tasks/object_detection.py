"""Detection of objects by boxes or masks, judged by COCO's average precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.output_steps import Masks
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.average_precision import (
    MatchedImage,
    Matches,
    ObjectMatcher,
    coco_figures,
    joined_matches,
)
from pytest_mlms.measure.evaluate.tasks.task import (
    BoxMark,
    ClassCounts,
    Evidence,
    MaskPair,
    Scorer,
    Task,
    WorstMasks,
)
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.detected import DetectedPicture, PictureDetector
from pytest_mlms.measure.pipeline.objects import (
    Detections,
    RunLengths,
    check_segmentation,
    decode_mask,
    encode_mask,
    mask_in_picture,
    overlap,
    pixels_in,
    run_lengths_of,
    union,
)


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
        """Return the found, wrong and missed objects of each picture, and detections as text."""
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


class ObjectDetection(Task):
    """Object detection."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer of boxes; raises DatasetError for a dataset without them."""
        return _BoxScorer(outputs, dataset)


class _BoxScorer(Scorer):
    def __init__(self, outputs: Sequence[Output], dataset: Dataset) -> None:
        self._detector = PictureDetector(outputs, dataset)
        self._names = [output.name for output in outputs]
        self._matcher = ObjectMatcher("bbox")
        self._matched: list[MatchedImage] = []

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        for number, index in enumerate(inputs):
            row = {name: outputs[name][number] for name in self._names}
            picture = self._detector.detect(row, index, number)
            self._matched.append(self._matcher.match(picture.objects, picture.detections))

    def evidence(self) -> DetectionEvidence:
        names = [category.name for category in self._detector.labels.categories]
        boxes = np.concatenate([image.boxes for image in self._matched])
        return DetectionEvidence(joined_matches(self._matched), boxes.astype(np.float32), names)


_KEPT_MASKS = 48
"""Pictures whose masks are kept: more than are shown, as those are chosen by their objects."""


class InstanceSegmentation(Task):
    """Instance segmentation."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer of masks; raises DatasetError for a dataset without them."""
        return _MaskScorer(outputs, dataset)


class _MaskScorer(Scorer):
    def __init__(self, outputs: Sequence[Output], dataset: Dataset) -> None:
        self._detector = PictureDetector(outputs, dataset)
        self._names = [output.name for output in outputs]
        self._matcher = ObjectMatcher("segm")
        self._parameters = mask_step(outputs)
        self._matched: list[MatchedImage] = []
        self._worst = WorstMasks(_KEPT_MASKS)
        self._check_masks(dataset)

    def _check_masks(self, dataset: Dataset) -> None:
        """Raise DatasetError for the first object without a mask of its picture's size."""
        labels = self._detector.labels
        for index, objects in enumerate(labels):
            pairs = zip(objects.segmentations, objects.records, strict=True)
            for segmentation, record in pairs:
                try:
                    check_segmentation(segmentation, objects.height, objects.width)
                except ValueError as error:
                    raise dataset.label_error(index, f"{record} {error}") from None

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        for number, index in enumerate(inputs):
            row = {name: outputs[name][number] for name in self._names}
            picture = self._detector.detect(row, index, number)
            found = with_masks(picture, self._parameters)
            labels = _label_masks(picture)
            self._matched.append(self._matcher.match(picture.objects, found, labels))
            self._offer(index, labels, found)

    def _offer(self, index: int, labels: Sequence[RunLengths], found: Detections) -> None:
        """Keep the pixels of all objects, and of as many detections, where they differ most."""
        surest = np.argsort(-found.scores, kind="stable")[: len(labels)]
        if not labels or not len(surest) or found.masks is None:
            return
        chosen = [found.masks[number] for number in surest.tolist()]
        loss = 1 - overlap(union(labels), union(chosen))
        if self._worst.takes(loss):
            pair = MaskPair(_numbered(labels), _numbered(chosen), are_instances=True)
            self._worst.offer(loss, index, pair)

    def evidence(self) -> DetectionEvidence:
        names = [category.name for category in self._detector.labels.categories]
        boxes = np.concatenate([image.boxes for image in self._matched])
        matches = joined_matches(self._matched)
        return DetectionEvidence(
            matches, boxes.astype(np.float32), names, "mask_", self._worst.kept()
        )


def _numbered(masks: Sequence[RunLengths]) -> Array:
    """Return the number of the mask that each pixel is in, the first of several, 0 for none."""
    numbers = np.zeros_like(decode_mask(masks[0]), dtype=np.int32)
    for number, mask in reversed(list(enumerate(masks, 1))):
        numbers[decode_mask(mask) > 0] = number
    return numbers


def with_masks(picture: DetectedPicture, parameters: Masks) -> Detections:
    """Return the detections of a picture with their masks in its pixels, as run lengths.

    Raises OutputError where there are none.
    """
    found = picture.detections
    if found.masks is None:
        raise OutputError("there are no masks; name an output of type masks")
    size = (picture.objects.height, picture.objects.width)
    masks = []
    boxes = zip(picture.inner_boxes.tolist(), found.boxes.tolist(), strict=True)
    for values, (box, corners) in zip(found.masks, boxes, strict=True):
        frame = box if parameters.frame == "box" else None
        pixels = mask_in_picture(values, parameters.threshold, size, picture.geometry, frame)
        if parameters.frame == "prototypes":
            pixels &= pixels_in(corners, size)
        masks.append(encode_mask(pixels))
    return Detections(found.boxes, found.scores, found.classes, masks)


def mask_step(outputs: Sequence[Output]) -> Masks:
    """Return the parameters of the step ``masks``, its defaults where there is none."""
    for output in outputs:
        for step in output.steps:
            if isinstance(step.parameters, Masks):
                return step.parameters
    return Masks()


def _label_masks(picture: DetectedPicture) -> list[RunLengths]:
    objects = picture.objects
    masks = []
    for segmentation in objects.segmentations:
        masks.append(run_lengths_of(segmentation, objects.height, objects.width))
    return masks
