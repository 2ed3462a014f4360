"""Labels and outputs of an input as scorers compare them, and their numbers as texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.measure.pipeline.geometry import Size

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


def in_shape(values: Array, shape: Sequence[int]) -> Array:
    """Return values in a shape that differs by axes of 1 alone, or else as they are."""
    if _long_axes(values.shape) != _long_axes(shape):
        return values
    return values.reshape(shape)


def resized_mask(mask: Array, shape: Sequence[int]) -> Array:
    """Return a mask of two axes, besides axes of 1, in a shape of two, by the nearest pixel.

    Others are returned as they are.
    """
    squeezed = mask.squeeze()
    if squeezed.ndim != 2 or len(shape) != 2:
        return mask
    from pytest_mlms.measure.pipeline import opencv_resizing

    return opencv_resizing.METHODS["nearest"](squeezed, Size(*shape))


def _long_axes(shape: Sequence[int]) -> list[int]:
    return [length for length in shape if length != 1]


def number_texts(values: Iterable[float]) -> list[str]:
    """Return numbers with six digits."""
    return [f"{value:.6g}" for value in values]
