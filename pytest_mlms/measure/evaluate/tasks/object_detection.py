"""Object detection: boxes with classes and scores, judged by COCO's average precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.average_precision import (
    MatchedImage,
    ObjectMatcher,
    joined_matches,
)
from pytest_mlms.measure.evaluate.detection_evidence import DetectionEvidence
from pytest_mlms.measure.evaluate.tasks.task import Array, Scorer, Task
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.detected import PictureDetector


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
