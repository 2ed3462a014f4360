"""Samples of datasets."""

from __future__ import annotations

import numpy as np

from pytest_mlms.author.doctor.examination import sampled
from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline import Dataset, Labels
from pytest_mlms.measure.pipeline.coco import CocoFile, CocoLabels, Picture

TENSOR = Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})
COUNT = 9


def dataset(labels: Labels) -> Dataset:
    values = [np.full(1, number) for number in range(COUNT)]
    return Dataset("d", (TENSOR,), {"x": values}, labels, sequences=list(range(COUNT)))


def test_a_sample_keeps_elements_labels_sequences_and_names_together() -> None:
    found = sampled(dataset(np.arange(COUNT)), 3)
    chosen = np.asarray(found.labels).tolist()
    assert len(found) == 3
    assert [int(value[0]) for value in found.elements["x"]] == chosen
    assert found.sequences is not None
    assert list(found.sequences) == chosen
    assert [found.place(index) for index in range(3)] == [f"element {n}" for n in chosen]
    assert found.numbers == chosen


def test_a_sample_of_boxes_has_labels_of_boxes() -> None:
    pictures = [Picture(number, f"{number}.png", 4, 4, "") for number in range(COUNT)]
    found = sampled(dataset(CocoLabels(CocoFile(pictures, [], []))), 3)
    assert isinstance(found.labels, CocoLabels)
    assert [objects.image_id for objects in found.labels] == found.numbers


def test_a_small_dataset_is_its_own_sample() -> None:
    data = dataset(np.arange(COUNT))
    assert sampled(data, COUNT) is data
