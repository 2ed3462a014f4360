"""A sample of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pytest_mlms.pipeline import Dataset

__all__ = ["sampled"]


def sampled(dataset: Dataset, most: int) -> Dataset:
    """Return at most so many elements of a dataset, drawn with a fixed seed, in their order."""
    if len(dataset) <= most:
        return dataset
    drawn = np.random.default_rng(0).permutation(len(dataset))[:most]
    chosen = sorted(drawn.tolist())
    labels = dataset.labels
    if isinstance(labels, np.ndarray):
        labels = labels[chosen]
    elif labels is not None:
        labels = _Chosen(labels, chosen)
    return replace(
        dataset,
        elements={name: _Chosen(values, chosen) for name, values in dataset.elements.items()},
        labels=labels,
        files=None if dataset.files is None else _Chosen(dataset.files, chosen),
        places=None if dataset.places is None else _Chosen(dataset.places, chosen),
        numbers=chosen if dataset.numbers is None else [dataset.numbers[n] for n in chosen],
    )


class _Chosen(Sequence[Any]):
    """Some elements of a sequence, which are read when they are asked for."""

    def __init__(self, values: Sequence[Any], chosen: Sequence[int]) -> None:
        self._values = values
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._values[number] for number in self._chosen[index]]
        return self._values[self._chosen[index]]
