"""Tests of semantic segmentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.measure.evaluate.scoring import figures_of
from pytest_mlms.measure.evaluate.tasks.task import Evidence
from tests.support.scored import evidence_of, resamples

TASK = "semantic-segmentation"
LABELS = np.array([[[0, 0], [1, 1]], [[0, 0], [0, 255]]], np.uint8)
MASKS = np.array([[[0, 1], [1, 1]], [[0, 0], [0, 0]]])


def evidence(*steps: Any, labels: Any = LABELS, masks: Any = MASKS) -> Evidence:
    return evidence_of(TASK, labels, masks, *steps)


def test_pixels_that_are_ignored_count_for_nothing() -> None:
    found = evidence({"mask": {"ignore": 255}})
    assert figures_of(found) == {
        "miou": pytest.approx((4 / 5 + 2 / 3) / 2),
        "pixel_accuracy": pytest.approx(6 / 7),
        "dice": pytest.approx((8 / 9 + 4 / 5) / 2),
    }
    assert found.losses.tolist() == [0.25, 0]
    assert found.columns()["worst_class"] == [0, 0]


def test_the_class_of_a_pixel_is_that_of_its_largest_score() -> None:
    scores = np.moveaxis(np.eye(2)[MASKS], -1, 1)
    ignored = {"mask": {"ignore": 255}}
    by_scores = evidence({"argmax": {"axis": 1}}, ignored, masks=scores)
    assert figures_of(by_scores) == figures_of(evidence(ignored))


def test_masks_of_one_channel_are_told_by_a_threshold() -> None:
    scores = np.where(MASKS, 0.9, 0.1)[:, None]
    ignored = {"mask": {"ignore": 255}}
    assert figures_of(evidence("threshold", ignored, masks=scores)) == figures_of(evidence(ignored))


def test_voxels_are_as_good_as_pixels() -> None:
    labels = np.zeros((2, 3, 4, 5), np.uint8)
    assert figures_of(evidence(labels=labels, masks=labels))["dice"] == 1


def test_labels_may_be_numbered_from_one() -> None:
    found = evidence({"mask": {"offset": 1, "ignore": 0}}, labels=MASKS + 1)
    assert figures_of(found)["miou"] == 1


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            LABELS,
            r"element 1: the label has class 255, and the model has 2 from 0; write a step 'mask: {ig",
        ),
        (
            LABELS[:, :1],
            r"d\.npz: element 0: the label is \(1, 2\), and output 'y' \(2, 2\); add the step",
        ),
        (LABELS.astype(int) - 1, "element 0: the label has class -1, and the model has 2 from 0"),
    ],
)
def test_labels_that_do_not_fit_are_an_error(labels: Any, message: str) -> None:
    scores = np.moveaxis(np.eye(2)[MASKS], -1, 1)
    with pytest.raises(DatasetError, match=message):
        evidence({"argmax": {"axis": 1}}, labels=labels, masks=scores)


def test_a_mask_gets_the_size_of_its_label_by_the_nearest_pixel() -> None:
    labels = LABELS.repeat(3, axis=1).repeat(2, axis=2)
    step = {"mask": {"ignore": 255, "resize": "nearest"}}
    assert figures_of(evidence(step, labels=labels)) == figures_of(
        evidence({"mask": {"ignore": 255}})
    )
    smaller = evidence(step, labels=LABELS[:, :1])
    assert figures_of(smaller)["pixel_accuracy"] == 0.75
    with pytest.raises(DatasetError, match="the label is"):
        evidence(step, labels=np.zeros((2, 3, 4, 5), np.uint8))


def test_a_mask_of_scores_needs_a_step() -> None:
    with pytest.raises(OutputError, match="has float64, not classes of pixels; add a step 'arg"):
        evidence(masks=MASKS * 0.5)


def test_an_output_with_a_class_that_there_is_not_is_an_error_of_the_output() -> None:
    with pytest.raises(OutputError, match="element 1: output 'y' has class -1, and classes are"):
        evidence({"mask": {"ignore": 255}}, masks=MASKS - [[[0]], [[1]]])


def test_axes_of_one_may_be_in_an_output_beside_those_of_its_label() -> None:
    labels = LABELS[:, :1]
    found = evidence({"mask": {"ignore": 255}}, labels=labels, masks=MASKS[:, None, :1])
    assert figures_of(found) == figures_of(
        evidence({"mask": {"ignore": 255}}, labels=labels, masks=MASKS[:, :1])
    )


@pytest.mark.slow
def test_the_quantities_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(2)
    labels = generator.integers(5, size=(12, 6, 7))
    masks = np.where(generator.random(labels.shape) < 0.7, labels, 3)
    counts = resamples(12)
    found = evidence(labels=labels, masks=masks).figures(counts)
    for sample, row in enumerate(counts.astype(int)):
        chosen = np.repeat(np.arange(12), row)
        truth = labels[chosen].ravel()
        given = masks[chosen].ravel()
        accuracy = metrics.accuracy_score(truth, given)
        iou = metrics.jaccard_score(truth, given, average="macro")
        assert found["pixel_accuracy"][sample] == pytest.approx(accuracy)
        assert found["miou"][sample] == pytest.approx(iou)
        assert found["dice"][sample] == pytest.approx(
            metrics.f1_score(truth, given, average="macro")
        )
