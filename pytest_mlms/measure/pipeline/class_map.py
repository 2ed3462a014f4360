"""The categories of a dataset that the classes of a model stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.manifest.box_steps import Classes
from pytest_mlms.measure.pipeline.coco import CocoLabels
from pytest_mlms.measure.pipeline.coco_json import Category
from pytest_mlms.measure.pipeline.name_files import read_names

Array = NDArray[Any]

_DROPPED = -1
_SHOWN = 5  # names in a message


@dataclass(frozen=True, eq=False)
class ClassMap:
    """The index of the category of each class, by the model's number; below 0 for none.

    ``drops_others`` is set where classes beyond the last one are none of the categories either.
    """

    indices: Array
    drops_others: bool = False

    @classmethod
    def of(cls, parameters: Classes | None, labels: CocoLabels) -> ClassMap:
        """Return the map that a step says, or without one that of the categories' order.

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
        _check_all_have_classes(found, labels)
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


def _check_all_have_classes(indices: Array, labels: CocoLabels) -> None:
    """Raise DatasetError where objects are labelled that the model has no class for."""
    known = {labels.categories[index].id for index in indices.tolist() if index >= 0}
    missing = [category.name for category in labels.used if category.id not in known]
    if missing:
        names = ", ".join(missing[:_SHOWN])
        problem = f"has labelled objects of {len(missing)} categories, {names}"
        advice = "write them into it as the dataset does, or remove the objects"
        raise DatasetError(f"{problem}, that are no class in the step 'classes'; {advice}")
