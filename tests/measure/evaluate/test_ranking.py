"""Tests of divergences against scipy, and of the comparison of best classes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax
from scipy.stats import entropy

from pytest_mlms.measure.evaluate.agreement import are_probabilities, divergences, rank

ELEMENTS = st.floats(-60, 60, width=32)


def logits(rows: int) -> Any:
    return arrays(np.float32, (rows, 4), elements=ELEMENTS)


def pairs_of_logits(rows: int) -> Any:
    return st.tuples(logits(rows), logits(rows))


def probabilities(values: np.ndarray) -> np.ndarray:
    return np.asarray(softmax(values, axis=1))


LOGITS = st.integers(1, 5).flatmap(logits)
PAIRS = st.integers(1, 5).flatmap(pairs_of_logits)
LOG_2 = math.log(2)


@given(PAIRS)
def test_divergences_are_scipys(both: Any) -> None:
    q = probabilities(both[0].astype(float))
    p = probabilities(both[1].astype(float))
    found = divergences(q, p)
    kl = entropy(p, q, axis=1)
    assert found["kl"] == pytest.approx(kl, abs=1e-12)
    with np.errstate(invalid="ignore"):  # scipy takes the root of a rounding below 0
        distance = np.nan_to_num(jensenshannon(p, q, axis=1))
    assert found["js"] == pytest.approx(distance**2, abs=1e-12)
    roots = np.sqrt(p) - np.sqrt(q)
    hellinger = np.linalg.norm(roots, axis=1) / math.sqrt(2)
    assert found["hellinger"] == pytest.approx(hellinger)


@given(PAIRS)
def test_divergences_are_bounded(both: Any) -> None:
    q, p = map(probabilities, both)
    found = divergences(q, p)
    assert found["kl"].min() >= 0
    assert np.isfinite(found["kl"]).all()
    assert found["js"].min() >= 0
    assert found["js"].max() <= LOG_2
    assert found["hellinger"].min() >= 0
    assert found["hellinger"].max() <= 1


@given(PAIRS)
def test_hellinger_is_bounded_by_jensen_shannon(both: Any) -> None:
    # Lin 1991; Topsøe 2000
    q, p = map(probabilities, both)
    found = divergences(q, p)
    bound = found["js"] / LOG_2 + 1e-9
    squared = found["hellinger"] ** 2
    assert (squared <= bound).all()


@given(PAIRS)
def test_jensen_shannon_and_hellinger_are_symmetric(both: Any) -> None:
    q, p = map(probabilities, both)
    there = divergences(q, p)
    back = divergences(p, q)
    assert there["js"] == pytest.approx(back["js"], abs=1e-12)
    assert there["hellinger"] == pytest.approx(back["hellinger"], abs=1e-12)


@given(LOGITS)
def test_equal_probabilities_do_not_diverge(values: np.ndarray) -> None:
    p = probabilities(values)
    for divergence in divergences(p, p).values():
        assert divergence == pytest.approx(0, abs=1e-7)


def test_a_probability_of_0_is_taken_for_the_least_one_of_float32() -> None:
    first = np.array([[1.0, 0.0]])
    second = np.array([[0.0, 1.0]])
    found = divergences(first, second)
    least = np.finfo(np.float32).tiny
    assert found["kl"] == pytest.approx(-math.log(least))
    assert found["js"] == pytest.approx(LOG_2)
    assert found["hellinger"] == 1


def test_a_probability_of_0_on_both_sides_adds_nothing() -> None:
    p = np.array([[0.5, 0.5, 0.0]])
    assert divergences(p, p)["kl"][0] == 0


@given(LOGITS)
def test_probabilities_are_told_from_logits(values: np.ndarray) -> None:
    scores = probabilities(values)
    assert are_probabilities(scores)
    assert are_probabilities(scores.astype(np.float16))
    negative = values - values.max() - 1
    assert not are_probabilities(negative)


def test_nan_is_no_probability() -> None:
    assert not are_probabilities(np.full((2, 2), np.nan))


def test_parts_are_ranked_as_one() -> None:
    ours = np.array([[0.9, 0.1], [0.3, 0.7]])
    reference = np.array([[0.8, 0.2], [0.6, 0.4]])
    first = (ours[:1], reference[:1])
    second = (ours[1:], reference[1:])
    found = rank([(first, first), (second, second)])
    assert found.ours.tolist() == [0, 1]
    assert found.reference.tolist() == [0, 0]
    assert found.divergences["kl"].shape == (2,)


def test_there_are_no_divergences_where_one_part_has_logits() -> None:
    scores = np.array([[0.9, 0.1]])
    raw = np.array([[5.0, -1.0]])
    same = (scores, scores)
    other = (raw, raw)
    found = rank([(same, same), (other, other)])
    assert found.divergences == {}


def test_the_best_class_is_that_of_the_values_before_softmax() -> None:
    logits = np.array([[0.0, 1e-20]])
    scores = probabilities(logits)
    found = rank([((logits, -logits), (scores, scores))])
    assert found.ours.tolist() == [1]
    assert found.reference.tolist() == [0]
