"""Some of the elements of a dataset, and a dataset without those that can't be prepared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.measure.pipeline.dataset import DECODERS, Dataset, SkippedElement


def selected_elements(dataset: Dataset, kept: Sequence[int]) -> Dataset:
    """Return the elements at ``kept`` of a dataset, in that order; messages call them as before."""
    from pytest_mlms.measure.pipeline.coco import CocoLabels
    from pytest_mlms.measure.pipeline.objects import Selected

    def selected(values: Sequence[Any] | None) -> Sequence[Any] | None:
        return None if values is None else Selected(values, kept)

    numbers, labels = dataset.numbers, dataset.labels
    if isinstance(labels, np.ndarray):
        labels = np.asarray(labels[list(kept)])
    elif isinstance(labels, CocoLabels):
        labels = labels.selected(kept)
    else:
        labels = selected(labels)
    return dataclasses.replace(
        dataset,
        elements={name: Selected(values, kept) for name, values in dataset.elements.items()},
        labels=labels,
        files=selected(dataset.files),
        places=[dataset.place(index) for index in kept],
        numbers=kept if numbers is None else [numbers[index] for index in kept],
        sequences=selected(dataset.sequences),
    )


_CHUNK = 32  # elements that a thread checks before its errors are looked at
_SHOWN = 3


def without_corrupt(dataset: Dataset, most: int) -> Dataset:
    """Return the dataset without its corrupt elements, which it names.

    If any are allowed, all elements and labels are read and prepared one by one before they are
    used, so the same are left out for every stack. Raises DatasetError where more than ``most`` are
    corrupt, or all.
    """
    if most == 0:
        return dataset
    skipped: dict[int, SkippedElement] = {}
    for index, error in _errors(dataset):
        skipped[index] = SkippedElement(dataset.place(index), error)
        if len(skipped) > most:
            raise _too_many(dataset, skipped.values(), f"more than {most} of its elements are")
    if len(skipped) == len(dataset):
        raise _too_many(dataset, skipped.values(), "all of its elements are")
    if not skipped:
        return dataset
    kept = [index for index in range(len(dataset)) if index not in skipped]
    selected = selected_elements(dataset, kept)
    return dataclasses.replace(selected, skipped=list(skipped.values()))


def _errors(dataset: Dataset) -> Iterator[tuple[int, str]]:
    """Yield the corrupt elements in order, and the error of each."""
    chunks = [
        range(first, min(first + _CHUNK, len(dataset))) for first in range(0, len(dataset), _CHUNK)
    ]
    with ThreadPoolExecutor(DECODERS, "mlms-check") as pool:
        try:
            for found in pool.map(lambda indices: _errors_of(dataset, indices), chunks):
                yield from found
        finally:
            pool.shutdown(cancel_futures=True)


def _errors_of(dataset: Dataset, indices: Sequence[int]) -> list[tuple[int, str]]:
    found = []
    for index in indices:
        try:
            dataset.check_element(index)
        except DatasetError as error:
            found.append((index, str(error)))
    return found


def _too_many(dataset: Dataset, skipped: Iterable[SkippedElement], text: str) -> DatasetError:
    shown = [f"{each.element}: {each.error}" for each in skipped]
    lines = "; ".join(shown[-_SHOWN:])
    advice = "replace them, or write a larger skip_corrupt"
    return DatasetError(f"{dataset.name}: {text} corrupt, such as {lines}; {advice}")
