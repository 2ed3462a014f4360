"""Tests of the scores of a dataset, and of the estimates of accuracy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mlms_predictors import Tensor

from pytest_mlms.errors import DatasetError, OutputError
from pytest_mlms.evaluate.accuracy import (
    ScoredDataset,
    classify_dataset,
    count_hits,
    estimate_accuracy,
    ranks,
)
from pytest_mlms.evaluate.inputs import Inputs
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.pipeline import Dataset, top_k
from pytest_mlms.quantities import quantities_of

SHAPES = st.tuples(st.integers(1, 8), st.integers(2, 9))
ELEMENTS = st.sampled_from([0, 0.25, 0.5, 1])  # so few that some are equal
SCORES = arrays(np.float64, SHAPES, elements=ELEMENTS)
PIXEL = Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})
LABELS = np.array([0, 1, 0, 1, 0, 1])
ARRAYS: Any = {"x": np.zeros((6, 1))}
SIX = Dataset("m.yaml:1: six.npz", (PIXEL,), ARRAYS, LABELS)
LOGITS = Output.model_validate({"name": "logits", "type": "classification", "steps": ["softmax"]})


@given(SCORES, st.integers(1, 9), st.data())
def test_a_hit_is_a_label_among_the_top_k(values: np.ndarray, k: int, data: st.DataObject) -> None:
    rows, classes = values.shape
    label = st.integers(0, classes - 1)
    labels = data.draw(st.lists(label, min_size=rows, max_size=rows))
    expected = 0
    for row, best in enumerate(top_k(values, k).tolist()):
        expected += labels[row] in best
    assert count_hits(values, np.array(labels, np.uint8), k) == expected


def test_a_constant_output_hits_one_class_only() -> None:
    constant = np.zeros((10, 10))
    assert count_hits(constant, np.arange(10), 1) == 1


def test_estimates_have_wilsons_interval() -> None:
    labels = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 0])
    found = estimate_accuracy(np.eye(10), labels)
    assert found["top1"].value == pytest.approx(0.9)
    assert found["top1"].low == pytest.approx(0.596, abs=1e-3)
    assert found["top5"].value == 1.0


def test_top5_needs_more_than_five_classes() -> None:
    of_five = estimate_accuracy(np.eye(5), np.arange(5))
    of_six = estimate_accuracy(np.eye(6), np.arange(6))
    assert set(of_five) == {"top1"}
    assert set(of_six) == {"top1", "top5"}


def test_every_quantity_of_accuracy_has_an_estimator() -> None:
    names = {quantity.name for quantity in quantities_of("accuracy")}
    assert set(ranks(1000)) == names


class FakePredictor:
    """A predictor that returns the next of its outputs for each batch."""

    inputs = (Tensor("x", "float32", (None, 1)),)
    outputs = (Tensor("logits", "float32", (None, 2)),)

    def __init__(self, *outputs: Any) -> None:
        self._outputs = iter(outputs)

    def predict(self, batch: Any) -> dict[str, Any]:
        return {"logits": np.asarray(next(self._outputs), np.float32)}


def classify(predictor: Any, dataset: Dataset, size: int, output: Output = LOGITS) -> ScoredDataset:
    return classify_dataset(predictor, Inputs(dataset, {}, size), dataset, output)


def test_scores_leave_out_what_filled_the_last_batch() -> None:
    predictor: Any = FakePredictor([[1, 0]] * 4, [[0, 1]] * 4)
    scores, ranking, labels = classify(predictor, SIX, 4)
    assert scores.argmax(axis=1).tolist() == [0, 0, 0, 0, 1, 1]
    assert ranking.argmax(axis=1).tolist() == [0, 0, 0, 0, 1, 1]
    assert scores.dtype == np.float32
    assert np.allclose(scores.sum(axis=1), 1)
    assert labels is LABELS


def test_classes_rank_by_the_logits_where_probabilities_underflow() -> None:
    logits = [0.0, -300.0, -290.0, -280.0, -270.0, -260.0, -250.0]
    predictor: Any = FakePredictor([logits] * 6)
    scores, ranking, _ = classify(predictor, SIX, 6)
    assert scores[0].tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert top_k(ranking, 5)[0].tolist() == [0, 6, 5, 4, 3]
    found = estimate_accuracy(ranking, np.ones(6, int))
    assert found["top5"].value == 0


def test_an_output_with_axes_of_one_is_a_table_of_scores() -> None:
    logits = np.array([[2.0, 1.0]] * 6)
    predictor: Any = FakePredictor(logits[:, :, None, None])
    scores, ranking, _ = classify(predictor, SIX, 6)
    assert ranking.tolist() == logits.tolist()
    assert np.allclose(scores.sum(axis=1), 1)


def test_the_first_input_whose_scores_are_not_finite_is_named() -> None:
    second = [[np.nan, 1], [np.inf, 0], [np.nan, 0], [0, 0]]
    predictor: Any = FakePredictor([[1, 0]] * 4, second)
    message = (
        "has NaN or infinity for 2 of 6 inputs, first for number 4, row 4 of m.yaml:1: six.npz;"
    )
    with pytest.raises(OutputError, match=message):
        classify(predictor, SIX, 4)


def test_an_output_that_is_no_table_of_scores_is_an_error() -> None:
    predictor: Any = FakePredictor(np.zeros((4, 2, 2)))
    message = r"output 'logits' of 4 inputs is \(4, 2, 2\); expected inputs x classes"
    with pytest.raises(OutputError, match=message):
        classify(predictor, SIX, 4)


def test_labels_that_are_no_classes_are_an_error() -> None:
    predictor: Any = FakePredictor([[1]] * 6)
    with pytest.raises(DatasetError, match="labels from 0 to 1, and the model the classes 0 to 0"):
        classify(predictor, SIX, 6)


def test_a_dataset_without_labels_has_no_accuracy() -> None:
    unlabelled = Dataset("m.yaml:1: six.npz", (PIXEL,), ARRAYS, None)
    predictor: Any = FakePredictor()
    with pytest.raises(DatasetError, match="has no array 'label'; add it"):
        classify(predictor, unlabelled, 6)


def test_the_file_of_the_first_input_that_is_not_finite_is_named() -> None:
    files = [f"cats/{number}.png" for number in range(6)]
    dataset = Dataset("m.yaml:1: photos.zip", (PIXEL,), ARRAYS, LABELS, files)
    predictor: Any = FakePredictor([[1, 0]] * 4, [[np.nan, 0]] * 4)
    with pytest.raises(OutputError, match=r"first for number 4, cats/4\.png; check"):
        classify(predictor, dataset, 4)


def test_the_batch_of_scores_is_on_the_axis_that_the_manifest_names() -> None:
    logits = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]] * 2)
    predictor: Any = FakePredictor(logits.T)
    output = LOGITS.model_copy(update={"shape": (2, "batch")})
    _, ranking, _ = classify(predictor, SIX, 6, output)
    assert ranking.tolist() == logits.tolist()
