"""Instance segmentation: objects with masks, judged by COCO's average precision of the masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.output_steps import Masks
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.average_precision import (
    MatchedImage,
    ObjectMatcher,
    joined_matches,
)
from pytest_mlms.measure.evaluate.detection_evidence import DetectionEvidence
from pytest_mlms.measure.evaluate.tasks.task import Array, MaskPair, Scorer, Task, WorstMasks
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.detected import DetectedPicture, PictureDetector
from pytest_mlms.measure.pipeline.masks import (
    check_segmentation,
    decode_mask,
    encode_mask,
    mask_in_picture,
    overlap,
    pixels_in,
    run_lengths_of,
    union,
)
from pytest_mlms.measure.pipeline.objects import Detections, RunLengths

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
