"""Tests of regression."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.measure.evaluate.scoring import figures_of
from tests.support.scored import dataset_of, evidence_of, resamples


def test_the_errors_of_single_numbers() -> None:
    evidence = evidence_of("regression", np.array([1.0, 2.0, 6.0]), [[1.0], [4.0], [5.0]])
    assert figures_of(evidence) == {
        "mae": 1.0,
        "rmse": pytest.approx(math.sqrt(5 / 3)),
        "r2": pytest.approx(1 - 5 / 14),
    }
    assert evidence.losses.tolist() == [0, 2, 1]
    assert evidence.columns() == {"label": ["1", "2", "6"], "prediction": ["1", "4", "5"]}


def test_vectors_have_a_cosine() -> None:
    labels = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    evidence = evidence_of("embedding", labels, [[0.0, 2.0], [6.0, 8.0], [1.0, 1.0]])
    assert figures_of(evidence)["cosine"] == pytest.approx(1 / 3)
    assert next(iter(evidence.columns())) == "numbers"


def test_labels_that_do_not_vary_have_no_r2() -> None:
    evidence = evidence_of("regression", np.array([7.0, 7.0]), [[1.0], [2.0]])
    assert math.isnan(figures_of(evidence)["r2"])


def test_large_labels_keep_their_variance() -> None:
    labels = 1e9 + np.arange(4.0)
    found = figures_of(evidence_of("regression", labels, labels[:, None] + 0.5))
    assert found["r2"] == pytest.approx(1 - 1 / 5)


def test_a_label_of_another_size_is_an_error() -> None:
    message = "m.yaml:9: d.npz: element 1: the label has 1 numbers, and output 'y' 2; write"
    with pytest.raises(DatasetError, match=message):
        evidence_of("regression", [np.ones(2), np.ones(1)], [[1.0, 1.0]] * 2)


def test_a_label_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(DatasetError, match="d.npz: element 0: the label has NaN or infinity"):
        evidence_of("regression", np.array([np.nan]), [[1.0]])


def test_numbers_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(OutputError, match="for 1 of 2 inputs, first for number 1, row 1"):
        evidence_of("regression", np.array([1.0, 2.0]), [[1.0], [np.inf]])


def test_a_dataset_without_labels_is_an_error() -> None:
    with pytest.raises(DatasetError, match="has no array 'label'; add it, numbers an element"):
        evidence_of("regression", None, [[1.0]])
    assert dataset_of(None).labels is None


@pytest.mark.slow
def test_the_quantities_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(1)
    labels = generator.normal(3, 2, size=(40, 5))
    values = labels + generator.normal(size=(40, 5))
    counts = resamples(40)
    found = evidence_of("regression", labels, values, batch=7).figures(counts)
    for sample, row in enumerate(counts.astype(int)):
        chosen = np.repeat(np.arange(40), row)
        truth = labels[chosen].ravel()
        given = values[chosen].ravel()
        mse = metrics.mean_squared_error(truth, given)
        assert found["mae"][sample] == pytest.approx(metrics.mean_absolute_error(truth, given))
        assert found["rmse"][sample] == pytest.approx(math.sqrt(mse))
        assert found["r2"][sample] == pytest.approx(metrics.r2_score(truth, given))
        cosines = metrics.pairwise.paired_cosine_distances(labels[chosen], values[chosen])
        assert found["cosine"][sample] == pytest.approx(1 - cosines.mean())
