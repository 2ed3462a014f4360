"""Labels of a dataset, which every task needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.measure.evaluate.tasks.task import Array

if TYPE_CHECKING:
    from pytest_mlms.measure.pipeline import Dataset, Labels


def labels_of(dataset: Dataset, form: str) -> Labels:
    """Return the labels of a dataset; raises DatasetError where it has none.

    ``form`` says what they are, as in "one class index an element".
    """
    if dataset.labels is None:
        raise DatasetError(f"{dataset.name} has no array 'label'; add it, {form}")
    return dataset.labels


def finite_label(dataset: Dataset, index: int) -> Array:
    """Return the numbers of a label; raises DatasetError for NaN and infinity among them."""
    label = np.asarray(dataset.label(index))
    if not np.isfinite(label).all():
        problem = "the label has NaN or infinity; correct it, or leave it out"
        raise dataset.label_error(index, problem)
    return label
