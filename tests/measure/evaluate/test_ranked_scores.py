"""ROC AUC, average precision and calibration, against scikit-learn and by definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.measure.evaluate.ranked_scores import (
    Curve,
    calibration_bias,
    calibration_errors,
)

SCORES = st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=2)


def parts(pairs: Any) -> tuple[Any, Any]:
    scores, labels = zip(*pairs, strict=True)
    return np.array(scores), np.array(labels)


def area_by_pairs(scores: Any, labels: Any) -> float:
    """Return the share of pairs in order, by all pairs."""
    differences = scores[labels][:, np.newaxis] - scores[~labels]
    return float(((differences > 0) + (differences == 0) / 2).mean())


@given(SCORES)
def test_the_area_is_the_share_of_pairs_in_order(pairs: Any) -> None:
    scores, labels = parts(pairs)
    (area,), (average,) = Curve.of(scores, labels).areas(np.ones((1, len(scores))))
    if labels.all() or not labels.any():
        assert np.isnan(area)
        assert np.isnan(average) == (not labels.any())
    else:
        assert area == pytest.approx(area_by_pairs(scores, labels))


@given(SCORES, st.integers(0, 2**32))
def test_an_input_that_is_drawn_twice_counts_twice(pairs: Any, seed: int) -> None:
    scores, labels = parts(pairs)
    counts = np.random.default_rng(seed).integers(0, 3, (4, len(scores)))
    found = Curve.of(scores, labels).areas(counts.astype(float))
    for index, sample in enumerate(counts):
        rows = np.repeat(np.arange(len(scores)), sample)
        again = Curve.of(scores[rows], labels[rows]).areas(np.ones((1, len(rows))))
        for one, other in zip(found, again, strict=True):
            assert one[index] == pytest.approx(other[0], nan_ok=True)


@given(SCORES)
def test_slopes_are_the_derivatives_of_the_areas(pairs: Any) -> None:
    scores, labels = parts(pairs)
    if labels.all() or not labels.any():
        return
    curve = Curve.of(scores, labels)
    size = len(scores)
    step = 1e-6
    more = curve.areas(np.ones((size, size)) + step * np.eye(size))
    less = curve.areas(np.ones((size, size)) - step * np.eye(size))
    for slope, high, low in zip(curve.slopes(), more, less, strict=True):
        assert slope == pytest.approx((high - low) / (2 * step), abs=1e-6)


@pytest.mark.slow
def test_areas_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    labels = generator.random(300) < 0.3
    scores = np.round(generator.normal(size=300), 1) + labels
    area, average = Curve.of(scores, labels).areas(np.ones((1, 300)))
    assert area[0] == pytest.approx(metrics.roc_auc_score(labels, scores))
    assert average[0] == pytest.approx(metrics.average_precision_score(labels, scores))


def test_calibration_is_the_mean_gap_of_its_bins() -> None:
    confidences = np.array([1 / 15, 0.07, 0.5, 0.52, 1.0, 0.0])
    right = np.array([True, False, True, False, True, False])
    counts = np.array([[1, 1, 1, 1, 1, 1], [0, 2, 0, 2, 0, 0]], float)
    first = abs(1 - 1 / 15)  # of 1/15 and 0, which are in the first bin
    middle = abs(1 - 1.02)  # of 0.5 and 0.52
    assert calibration_errors(counts, confidences, right) == pytest.approx(
        [(first + 0.07 + middle) / 6, (2 * 0.07 + 2 * 0.52) / 4]
    )


@given(st.lists(st.tuples(st.integers(0, 1499), st.booleans()), min_size=1))
def test_calibration_is_that_of_a_loop_over_bins(pairs: Any) -> None:
    numbers, right = parts(pairs)
    confidences = (numbers + 0.5) / 1500  # no edge of a bin
    expected = 0.0
    for number in range(15):
        inside = numbers // 100 == number
        if inside.any():
            expected += abs(right[inside].mean() - confidences[inside].mean()) * inside.mean()
    (found,) = calibration_errors(np.ones((1, len(right))), confidences, right)
    assert found == pytest.approx(expected)


def test_rounding_moves_no_confidence_over_the_edge_of_a_bin() -> None:
    shares = np.tile(np.arange(1, 6, dtype=np.float32) / 5, 40)
    right = np.arange(200) % 3 > 0
    up = np.where(np.arange(200) % 2, np.nextafter(shares, np.float32(2)), shares)
    both = [
        calibration_errors(np.ones((1, 200)), each.astype(float), right) for each in (shares, up)
    ]
    assert both[0] == pytest.approx(both[1], abs=1e-6)


@pytest.mark.parametrize("inputs", [1, 20, 200, 2000])
def test_chance_explains_the_calibration_error_of_a_calibrated_model(inputs: int) -> None:
    draws = np.random.default_rng(3)
    errors, biases = [], []
    for _ in range(50):
        confidences = draws.uniform(0.5, 1, inputs)
        right = draws.random(inputs) < confidences
        errors.append(calibration_errors(np.ones((1, inputs)), confidences, right)[0])
        biases.append(calibration_bias(confidences, right))
    assert np.mean(biases) >= 0.9 * np.mean(errors)
    wrong = calibration_bias(np.full(inputs * 100, 0.9), np.arange(inputs * 100) % 2 == 0)
    assert wrong < 0.05  # beside an error of 0.4
