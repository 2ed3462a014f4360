"""Detections of a dataset's pictures, in the picture's pixels and in the dataset's categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.manifest.output_steps import Classes
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.pipeline.boxes import BoxReader
from pytest_mlms.measure.pipeline.coco import Category, CocoLabels
from pytest_mlms.measure.pipeline.dataset import Dataset
from pytest_mlms.measure.pipeline.geometry import Geometry, geometry_of
from pytest_mlms.measure.pipeline.objects import Detections, LabelledObjects
from pytest_mlms.measure.pipeline.step_files import read_names

_DROPPED = -1
_SHOWN = 5  # names in a message


@dataclass(frozen=True, eq=False)
class ClassMap:
    """The index of the category of each class, by the model's number; below 0 for none.

    ``drops_others`` is set where classes beyond the last one stand for no category, too.
    """

    indices: Array
    drops_others: bool = False

    @classmethod
    def of(cls, parameters: Classes | None, labels: CocoLabels) -> ClassMap:
        """Return the map of a step, or without one the order of the categories.

        A file that the step names is a local one. Raises DatasetError where no class stands for a
        category that has objects.
        """
        categories = labels.categories
        if parameters is None:
            return cls(np.arange(len(categories)))
        if parameters.ids is not None:
            found = _by_id(parameters.ids, categories)
        elif parameters.names is not None:
            found = _by_name(parameters.names, categories)
        else:
            assert parameters.labels is not None, "the step has one of three keys"
            found = _by_name(read_names(Path(parameters.labels), "name"), categories)
        known = {labels.categories[index].id for index in found.tolist() if index >= 0}
        missing = [category.name for category in labels.used if category.id not in known]
        if missing:
            names = ", ".join(missing[:_SHOWN])
            problem = f"has labelled objects of {len(missing)} categories, {names}"
            advice = "write them into it as the dataset does, or remove the objects"
            raise DatasetError(f"{problem}, that are no class in the step 'classes'; {advice}")
        return cls(found, drops_others=parameters.ids == "same")

    def categories_of(self, classes: Array) -> Array:
        """Return the index of the category of each class (n), below 0 for none.

        Raises OutputError for a class that has no place in the map.
        """
        count = len(self.indices)
        beyond = (classes < 0) | (classes >= count)
        if beyond.any() and not self.drops_others:
            found = (
                f"a detection has the class {classes[beyond][0]}, and the last one is {count - 1}"
            )
            advice = "say which category each class is with the step 'classes'"
            raise OutputError(f"{found}; {advice}")
        known = np.where(beyond, 0, classes)
        return np.where(beyond, _DROPPED, self.indices[known])


def _by_id(ids: Any, categories: Sequence[Category]) -> Array:
    index_of = {category.id: index for index, category in enumerate(categories)}
    if ids == "same":
        last = max(index_of, default=-1)
        ids = range(min(last, 1 << 20) + 1)
        return np.array([index_of.get(number, _DROPPED) for number in ids], dtype=np.int64)
    for number in ids:
        if number is not None and number not in index_of:
            known = ", ".join(map(str, list(index_of)[:_SHOWN]))
            problem = f"has no category with the id {number}, which the step 'classes' names"
            raise DatasetError(f"{problem}; write some of {known}, or null")
    return np.array([index_of.get(number, _DROPPED) for number in ids], dtype=np.int64)


def _by_name(names: Sequence[str | None], categories: Sequence[Category]) -> Array:
    index_of = {category.name: index for index, category in enumerate(categories)}
    found = [_DROPPED if name is None else index_of.get(name, _DROPPED) for name in names]
    return np.array(found, dtype=np.int64)


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
        parameters = [step.parameters for output in outputs for step in output.steps]
        classes = next((one for one in parameters if isinstance(one, Classes)), None)
        try:
            self._classes = ClassMap.of(classes, self.labels)
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
        bounds = [objects.width, objects.height, objects.width, objects.height]
        boxes = np.clip(geometry.to_picture(found.boxes), 0, np.array(bounds, np.float64))
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
