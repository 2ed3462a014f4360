"""Some of the elements of a dataset, or of any sequence."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_mlms.measure.pipeline.coco import CocoLabels
from pytest_mlms.measure.pipeline.dataset import Dataset
from pytest_mlms.measure.pipeline.labels import Labels
from pytest_mlms.measure.pipeline.selected import Selected


def selected_elements(dataset: Dataset, kept: Sequence[int]) -> Dataset:
    """Return the elements at ``kept`` of a dataset, in that order; messages call them as before."""
    numbers = dataset.numbers
    return dataclasses.replace(
        dataset,
        elements={name: Selected(values, kept) for name, values in dataset.elements.items()},
        labels=_selected_labels(dataset.labels, kept),
        files=_selected(dataset.files, kept),
        places=[dataset.place(index) for index in kept],
        numbers=kept if numbers is None else [numbers[index] for index in kept],
        sequences=_selected(dataset.sequences, kept),
    )


def _selected(values: Sequence[Any] | None, kept: Sequence[int]) -> Sequence[Any] | None:
    return None if values is None else Selected(values, kept)


def _selected_labels(labels: Labels | None, kept: Sequence[int]) -> Labels | None:
    if isinstance(labels, np.ndarray):
        return np.asarray(labels[list(kept)])
    if isinstance(labels, CocoLabels):
        return labels.selected(kept)
    return _selected(labels, kept)
