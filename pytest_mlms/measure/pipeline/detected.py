"""Detections of a dataset's pictures, with their boxes in the pixels of the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.manifest.box_steps import Classes
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.pipeline.boxes import BoxReader
from pytest_mlms.measure.pipeline.class_map import ClassMap
from pytest_mlms.measure.pipeline.coco import CocoLabels
from pytest_mlms.measure.pipeline.dataset import Dataset
from pytest_mlms.measure.pipeline.geometry import Geometry, geometry_of
from pytest_mlms.measure.pipeline.objects import Detections, LabelledObjects

Array = NDArray[Any]


class DetectedPicture(NamedTuple):
    """The labelled objects of a picture, and what was detected in it.

    The boxes of the detections are in pixels of the picture, their classes are indices of
    categories, and their masks are those of the model, in its input or in the box that it gave
    (``inner_boxes``, n x 4, in pixels of the input).
    """

    objects: LabelledObjects
    detections: Detections
    inner_boxes: Array
    geometry: Geometry


def coco_labels(dataset: Dataset) -> CocoLabels:
    """Return the labels of a dataset; raises DatasetError where they aren't boxes."""
    labels = dataset.labels
    if not isinstance(labels, CocoLabels):
        advice = "name a COCO file, or an archive of one with its pictures"
        raise DatasetError(f"{dataset.name} has no boxes; {advice}")
    return labels


class PictureDetector:
    """Reader of the detections in a model's outputs for the pictures of a dataset.

    Steps that name files name local ones.
    """

    def __init__(self, outputs: Sequence[Output], dataset: Dataset) -> None:
        self.labels = coco_labels(dataset)
        self._dataset = dataset
        self._reader = BoxReader(outputs)
        self._input = dataset.picture_input()
        try:
            self._classes = ClassMap.of(_classes_step(outputs), self.labels)
        except DatasetError as error:
            raise DatasetError(f"{dataset.name} {error}") from None

    def detect(self, row: Mapping[str, Array], index: int, number: int) -> DetectedPicture:
        """Return what was detected in the picture at ``index`` of the dataset.

        ``row`` has the outputs for it, and ``number`` is its place in the batch. Raises
        OutputError and DatasetError, which name the picture.
        """
        objects = self.labels[index]
        try:
            self._check_size(objects, index)
            geometry = geometry_of(self._input.steps, objects.height, objects.width)
        except (DatasetError, ValueError) as error:
            raise self._dataset.label_error(index, str(error)) from None
        try:
            found = self._reader.read(row, geometry.size, number)
            categories = self._classes.categories_of(found.classes)
        except OutputError as error:
            raise OutputError(f"{self._dataset.place(index)}: {error}") from error
        found = Detections(found.boxes, found.scores, categories, found.masks)
        found = found.take(np.flatnonzero(categories >= 0))
        boxes = _within(geometry.to_picture(found.boxes), objects)
        detections = Detections(boxes, found.scores, found.classes, found.masks)
        return DetectedPicture(objects, detections, found.boxes, geometry)

    def _check_size(self, objects: LabelledObjects, index: int) -> None:
        """Raise DatasetError where the picture has another size than the COCO file says."""
        height, width = self._dataset.picture_size(index)
        labelled = (objects.height, objects.width)
        if labelled == (height, width):
            return
        found = f"it is {width} x {height}, and labelled as {objects.width} x {objects.height}"
        advice = "label this picture, or restore the one that is labelled"
        if labelled == (width, height):
            advice = "if its EXIF orientation turns it, write 'decode: {orientation: stored}'"
        raise DatasetError(f"{found}; {advice}")


def _classes_step(outputs: Sequence[Output]) -> Classes | None:
    for output in outputs:
        for step in output.steps:
            if isinstance(step.parameters, Classes):
                return step.parameters
    return None


def _within(corners: Array, objects: LabelledObjects) -> Array:
    """Return boxes without what is beyond the picture."""
    bounds = [objects.width, objects.height, objects.width, objects.height]
    return np.clip(corners, 0, np.array(bounds, np.float64))
