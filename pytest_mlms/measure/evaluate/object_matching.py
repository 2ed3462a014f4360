"""Matching of the objects that a model detects with those of the labels, by pycocotools.

The images are matched one by one, so that a dataset of any size streams. What remains of an image
is a few numbers for each detection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.evaluate.average_precision import IOU_THRESHOLDS, MOST_DETECTIONS, Matches
from pytest_mlms.measure.pipeline.objects import (
    Detections,
    LabelledObjects,
    RunLengths,
    boxes_of_corners,
)

Array = NDArray[Any]
Record = dict[str, Any]
"""An annotation as COCO's files have it."""

_ALL_AREAS = (0.0, 1e10)  # pycocotools' bounds of "all"


class MatchedImage(NamedTuple):
    """The detections of one image that count, and the number of its objects by category.

    Attributes:
        categories: The category of each detection (n), as an index.
        scores: The score of each detection (n).
        boxes: Left, top, width and height of each detection (n x 4), in pixels.
        found: Whether it finds an object, at each IoU threshold (n x T).
        ignored: Whether it doesn't count, at each IoU threshold (n x T).
        objects: The number of objects that count, by category.
    """

    categories: Array
    scores: Array
    boxes: Array
    found: Array
    ignored: Array
    objects: dict[int, int]


class ObjectMatcher:
    """Matches the objects of one image at a time, by their boxes or by their masks.

    Raises MlmsError where pycocotools isn't installed.
    """

    def __init__(self, by: Literal["bbox", "segm"]) -> None:
        try:
            from pycocotools.cocoeval import COCOeval
        except ImportError as error:
            advice = "pip install 'pytest-mlms[detection]'"
            raise MlmsError(f"scoring detections needs pycocotools; {advice}") from error
        self._by = by
        self._evaluation = COCOeval(iouType=by)
        self._evaluation.params.iouThrs = IOU_THRESHOLDS
        self._evaluation.params.maxDets = [MOST_DETECTIONS]

    def match(
        self,
        objects: LabelledObjects,
        detections: Detections,
        masks: Sequence[RunLengths] = (),
    ) -> MatchedImage:
        """Return the matches of an image.

        The detections have their boxes in pixels of the picture and the index of a category as
        their class. ``masks`` are those of the labelled objects, where masks are matched.
        """
        labels = self._label_records(objects, masks)
        boxes = boxes_of_corners(np.asarray(detections.boxes, np.float64))
        found = self._detection_records(detections, boxes)
        evaluation = self._evaluation
        evaluation._gts = _by_category(labels)
        evaluation._dts = _by_category(found)
        evaluation.ious = {}
        parts = []
        counts = {}
        for category in sorted({record["category_id"] for record in [*labels, *found]}):
            evaluation.ious[0, category] = evaluation.computeIoU(0, category)
            result = evaluation.evaluateImg(0, category, _ALL_AREAS, MOST_DETECTIONS)
            parts.append(_CategoryMatches.of(result))
            counts[category] = int(np.count_nonzero(np.asarray(result["gtIgnore"]) == 0))
        return _joined_categories(parts, boxes, {k: n for k, n in counts.items() if n})

    def _label_records(self, objects: LabelledObjects, masks: Sequence[RunLengths]) -> list[Record]:
        records = []
        crowds = objects.crowds.astype(int).tolist()
        categories = objects.categories.tolist()
        areas = objects.areas.tolist()
        for number, box in enumerate(objects.boxes.tolist()):
            record: Record = {
                "id": number + 1,  # pycocotools takes 0 for no match
                "category_id": categories[number],
                "bbox": box,
                "area": areas[number],
                "iscrowd": crowds[number],
                "ignore": crowds[number],
            }
            if self._by == "segm":
                record["segmentation"] = masks[number]
            records.append(record)
        return records

    def _detection_records(self, detections: Detections, boxes: Array) -> list[Record]:
        records = []
        scores = detections.scores.tolist()
        classes = detections.classes.tolist()
        for number, box in enumerate(boxes.tolist()):
            record: Record = {
                "id": number + 1,
                "category_id": classes[number],
                "bbox": box,
                "score": scores[number],
                "area": box[2] * box[3],
            }
            if self._by == "segm":
                assert detections.masks is not None, "detections are matched by their masks"
                record["segmentation"] = detections.masks[number]
            records.append(record)
        return records


def _by_category(records: Iterable[Record]) -> dict[tuple[int, int], list[Record]]:
    """Return the records of each category of the only image, whose number is 0."""
    found: dict[tuple[int, int], list[Record]] = defaultdict(list)
    for record in records:
        found[0, record["category_id"]].append(record)
    return found


class _CategoryMatches(NamedTuple):
    """The detections of one category of one image, best first, by number from 0."""

    category: int
    numbers: Array
    scores: Array
    found: Array
    ignored: Array

    @classmethod
    def of(cls, result: Any) -> _CategoryMatches:
        """Return what pycocotools says of a category of an image."""
        numbers = np.array(result["dtIds"], dtype=np.int64) - 1
        found = np.asarray(result["dtMatches"]).T > 0
        ignored = np.asarray(result["dtIgnore"]).T.astype(bool)
        scores = np.array(result["dtScores"], dtype=np.float64)
        return cls(result["category_id"], numbers, scores, found, ignored)


def _joined_categories(
    parts: Sequence[_CategoryMatches], boxes: Array, objects: dict[int, int]
) -> MatchedImage:
    if not parts:
        flags = np.zeros((0, len(IOU_THRESHOLDS)), bool)
        return MatchedImage(
            np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 4)), flags, flags, objects
        )
    numbers = np.concatenate([part.numbers for part in parts])
    categories = [np.full(len(part.numbers), part.category, np.int64) for part in parts]
    return MatchedImage(
        categories=np.concatenate(categories),
        scores=np.concatenate([part.scores for part in parts]),
        boxes=boxes[numbers],
        found=np.concatenate([part.found for part in parts]),
        ignored=np.concatenate([part.ignored for part in parts]),
        objects=objects,
    )


def joined_matches(images: Sequence[MatchedImage]) -> Matches:
    """Return the matches of all images; raises ValueError without any."""
    detections = [len(image.scores) for image in images]
    categories: list[int] = []
    counts: list[int] = []
    for image in images:
        categories += image.objects.keys()
        counts += image.objects.values()
    pairs = [len(image.objects) for image in images]
    numbers = np.arange(len(images))
    return Matches(
        size=len(images),
        images=np.repeat(numbers, detections),
        categories=np.concatenate([image.categories for image in images]),
        scores=np.concatenate([image.scores for image in images]),
        found=np.concatenate([image.found for image in images]),
        ignored=np.concatenate([image.ignored for image in images]),
        object_images=np.repeat(numbers, pairs),
        object_categories=np.array(categories, dtype=np.int64),
        object_counts=np.array(counts, dtype=np.int64),
    )
