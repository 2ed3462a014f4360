"""Matches of detected objects with labelled ones; average precision and recall as COCO has them.

The images are matched one by one by pycocotools, so that a dataset of any size streams. What
remains of an image is a few numbers for each detection. An image that is n times in a sample counts
n times, so the figures of many samples are sums over the same matches. With every image once they
are those of pycocotools' COCOeval (https://cocodataset.org/#detection-eval).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.measure.pipeline.objects import (
    Detections,
    LabelledObjects,
    RunLengths,
    boxes_of_corners,
)

IOU_THRESHOLDS = np.linspace(0.5, 0.95, 10)
"""The least overlaps (intersection over union) at which a detection finds an object."""

MOST_DETECTIONS = 100
"""Detections of a category that count in an image, best scores first."""

_RECALLS = np.linspace(0, 1, 101)
"""The recalls that precision is averaged over."""

_AT_50 = 0
_AT_75 = 5
"""Indices of the IoU thresholds of AP50 and AP75."""

_CHUNK = 1 << 15  # numbers of an array of samples x detections


@dataclass(frozen=True, eq=False)
class Matches:
    """D detections in N images, and the P pairs of an image and a category that has objects there.

    Images and categories are indices. Within a category, detections of the same score rank by
    their order.

    Attributes:
        size: N, the number of images.
        images: The image of each detection (D).
        categories: The category of each detection (D).
        scores: The score of each detection (D).
        found: Whether the detection finds an object, at each IoU threshold (D x T).
        ignored: Whether it counts neither as right nor as wrong, as in a crowd (D x T).
        object_images: The image of each pair (P).
        object_categories: The category of each pair (P).
        object_counts: The objects of each pair, without those that are ignored (P).
    """

    size: int
    images: Array
    categories: Array
    scores: Array
    found: Array
    ignored: Array
    object_images: Array
    object_categories: Array
    object_counts: Array


class _Ranked(NamedTuple):
    """The detections of one category, best first, and its objects."""

    images: Array
    found: Array
    ignored: Array
    object_images: Array
    object_counts: Array


class _CategoryFigures(NamedTuple):
    """Average precision and largest recall for each sample and IoU threshold (R x T)."""

    precision: Array
    recall: Array


def coco_figures(matches: Matches, counts: Array) -> dict[str, Array]:
    """Return AP, AP50, AP75 and AR100 for R samples of the images.

    ``counts`` (R x N) says how often each image is in each sample. A category without objects in a
    sample is left out of its means; without any the figures are NaN.
    """
    samples = len(counts)
    thresholds = len(IOU_THRESHOLDS)
    precision = np.zeros((samples, thresholds))
    recall = np.zeros((samples, thresholds))
    judged = np.zeros((samples, 1))
    for ranked in _by_category(matches):
        objects = _objects(ranked, counts)
        figures = _category_figures(ranked, counts, objects)
        has_objects = objects[:, None] > 0
        precision += np.where(has_objects, figures.precision, 0)
        recall += np.where(has_objects, figures.recall, 0)
        judged += has_objects
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN where no category has objects
        precision /= judged
        recall /= judged
    return {
        "AP": precision.mean(axis=1),
        "AP50": precision[:, _AT_50],
        "AP75": precision[:, _AT_75],
        "AR100": recall.mean(axis=1),
    }


def _by_category(matches: Matches) -> Iterator[_Ranked]:
    """Yield the detections and the objects of each category that has objects that count."""
    for category in np.unique(matches.object_categories):
        own = np.flatnonzero(matches.categories == category)
        best_first = np.argsort(-matches.scores[own], kind="stable")
        order = own[best_first]
        pairs = np.flatnonzero(matches.object_categories == category)
        yield _Ranked(
            matches.images[order],
            matches.found[order],
            matches.ignored[order],
            matches.object_images[pairs],
            matches.object_counts[pairs],
        )


def _objects(ranked: _Ranked, counts: Array) -> Array:
    """Return the objects of a category in each sample (R)."""
    weights = counts[:, ranked.object_images].astype(np.int64)
    return np.asarray(weights @ ranked.object_counts)


def _category_figures(ranked: _Ranked, counts: Array, objects: Array) -> _CategoryFigures:
    samples = len(counts)
    thresholds = len(IOU_THRESHOLDS)
    precision = np.zeros((samples, thresholds))
    recall = np.zeros((samples, thresholds))
    step = max(1, _CHUNK // max(1, len(ranked.images)))
    for first in range(0, samples, step):
        chunk = slice(first, first + step)
        figures = _chunk_figures(ranked, counts[chunk], objects[chunk])
        precision[chunk] = figures.precision
        recall[chunk] = figures.recall
    return _CategoryFigures(precision, recall)


def _chunk_figures(ranked: _Ranked, counts: Array, objects: Array) -> _CategoryFigures:
    """Return the figures of a category for as many samples as fit into the processor's cache."""
    weights = counts[:, ranked.images].astype(np.int64)
    reached = _Reached.of(objects)
    judged = None
    precisions: list[Array] = []
    recalls: list[Array] = []
    for number in range(len(IOU_THRESHOLDS)):
        if number and _is_repeated(ranked, number):
            precisions.append(precisions[-1])
            recalls.append(recalls[-1])
            continue
        ignored = ranked.ignored[:, number]
        if judged is None or ranked.ignored.any():
            judged = np.cumsum(np.where(ignored, 0, weights), axis=1)
        hits = np.flatnonzero(ranked.found[:, number] & ~ignored)
        right = np.cumsum(weights[:, hits], axis=1)
        precisions.append(_average_precision(right, judged[:, hits], reached))
        recalls.append(_largest_recall(right, objects))
    return _CategoryFigures(np.stack(precisions, axis=1), np.stack(recalls, axis=1))


def _is_repeated(ranked: _Ranked, number: int) -> bool:
    """Return whether the matches at a threshold are those at the one before."""
    for flags in (ranked.found, ranked.ignored):
        if not np.array_equal(flags[:, number], flags[:, number - 1]):
            return False
    return True


class _Reached(NamedTuple):
    """How many of the recalls of the average are reached with each number of found objects.

    ``table`` has a row for each number of objects that a sample has, and ``starts`` the index in
    the flat table of the row of each sample (R x 1).
    """

    table: Array
    starts: Array

    @classmethod
    def of(cls, objects: Array) -> _Reached:
        """Return the table for samples with so many objects (R)."""
        totals, rows = np.unique(objects, return_inverse=True)
        width = int(totals[-1]) + 1
        found = np.arange(width)
        table = []
        for total in totals:
            recall = found / max(1, int(total))
            table.append(np.searchsorted(_RECALLS, recall, side="right"))
        starts = rows.reshape(-1, 1) * width
        return cls(np.concatenate(table).astype(np.float64), starts)

    def __call__(self, right: Array) -> Array:
        return np.asarray(self.table.take(right + self.starts))


def _average_precision(right: Array, judged: Array, reached: _Reached) -> Array:
    """Return the mean over the recalls of the best precision at that recall or a larger one.

    ``right`` and ``judged`` are, for each sample and each detection that finds an object (R x H),
    the detections so far that find one, and all that count.
    """
    samples, hits = right.shape
    if hits == 0:
        return np.zeros(samples)
    precision = right / np.maximum(judged, 1)
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recalls = np.diff(reached(right), axis=1, prepend=0.0)
    total = np.einsum("rh,rh->r", best, recalls)
    return np.asarray(total / len(_RECALLS))


def _largest_recall(right: Array, objects: Array) -> Array:
    if right.shape[1] == 0:
        return np.zeros(len(objects))
    return np.asarray(right[:, -1] / np.maximum(objects, 1))


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
            advice = install("detection")
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
        their class. ``masks`` has the labelled objects' masks, where masks are matched.
        """
        labels = self._label_records(objects, masks)
        boxes = boxes_of_corners(np.asarray(detections.boxes, np.float64))
        found = self._detection_records(detections, boxes)
        evaluation = self._evaluation
        evaluation._gts = _records_by_category(labels)
        evaluation._dts = _records_by_category(found)
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


def _records_by_category(records: Iterable[Record]) -> dict[tuple[int, int], list[Record]]:
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
