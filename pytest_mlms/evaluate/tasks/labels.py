"""Labels of a dataset, which every task needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_mlms.errors import DatasetError

if TYPE_CHECKING:
    from pytest_mlms.pipeline import Dataset, Labels

__all__ = ["labels_of"]


def labels_of(dataset: Dataset, form: str) -> Labels:
    """Return the labels of a dataset; raises DatasetError where it has none.

    ``form`` says what they are, as in "one class index an element".
    """
    if dataset.labels is None:
        raise DatasetError(f"{dataset.name} has no array 'label'; add it, {form}")
    return dataset.labels
