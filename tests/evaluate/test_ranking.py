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

from pytest_mlms.evaluate.ranking import are_probabilities, divergences, rank

ELEMENTS = st.floats(-60, 60, width=32)


def logits(rows: int) -> Any:
    return arrays(np.float32, (rows, 4), elements=ELEMENTS)


def pairs_of_logits(rows: int) -> Any:
    return st.tuples(logits(rows), logits(rows))


LOGITS = st.integers(1, 5).flatmap(logits)
PAIRS = st.integers(1, 5).flatmap(pairs_of_logits)


@given(PAIRS)
def test_divergences_are_scipys(both: Any) -> None:
    q = softmax(both[0].astype(float), axis=1)
    p = softmax(both[1].astype(float), axis=1)
    found = divergences(q, p)
    assert found["kl"] == pytest.approx(entropy(p, q, axis=1), abs=1e-12)
    with np.errstate(invalid="ignore"):  # scipy takes the root of a rounding below 0
        distance = np.nan_to_num(jensenshannon(p, q, axis=1))
    assert found["js"] == pytest.approx(distance**2, abs=1e-12)
    euclidean = np.linalg.norm(np.sqrt(p) - np.sqrt(q), axis=1)
    assert found["hellinger"] == pytest.approx(euclidean / math.sqrt(2))


@given(PAIRS)
def test_divergences_are_bounded(both: Any) -> None:
    found = divergences(softmax(both[0], axis=1), softmax(both[1], axis=1))
    assert (found["kl"] >= 0).all()
    assert np.isfinite(found["kl"]).all()
    assert (found["js"] >= 0).all()
    assert (found["js"] <= math.log(2)).all()
    assert (found["hellinger"] >= 0).all()
    assert (found["hellinger"] <= 1).all()
    bound = found["js"] / math.log(2)  # Lin 1991; Topsøe 2000
    assert (found["hellinger"] ** 2 <= bound + 1e-9).all()


@given(PAIRS)
def test_jensen_shannon_and_hellinger_are_symmetric(both: Any) -> None:
    q = softmax(both[0], axis=1)
    p = softmax(both[1], axis=1)
    there = divergences(q, p)
    back = divergences(p, q)
    assert there["js"] == pytest.approx(back["js"], abs=1e-12)
    assert there["hellinger"] == pytest.approx(back["hellinger"], abs=1e-12)


@given(LOGITS)
def test_equal_probabilities_do_not_diverge(values: np.ndarray) -> None:
    p = softmax(values, axis=1)
    for divergence in divergences(p, p).values():
        assert divergence == pytest.approx(0, abs=1e-7)


def test_a_probability_of_0_is_taken_for_the_least_one_of_float32() -> None:
    found = divergences(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    assert found["kl"][0] == pytest.approx(-math.log(np.finfo(np.float32).tiny))
    assert found["js"][0] == pytest.approx(math.log(2))
    assert found["hellinger"][0] == 1


def test_a_probability_of_0_on_both_sides_adds_nothing() -> None:
    p = np.array([[0.5, 0.5, 0.0]])
    assert divergences(p, p)["kl"][0] == 0


@given(LOGITS)
def test_probabilities_are_told_from_logits(values: np.ndarray) -> None:
    probabilities = softmax(values, axis=1)
    assert are_probabilities(probabilities)
    assert are_probabilities(probabilities.astype(np.float16))
    assert not are_probabilities(values - values.max() - 1)
    assert not are_probabilities(np.full((2, 2), np.nan))


def test_parts_are_ranked_as_one() -> None:
    first = (np.array([[0.9, 0.1]]), np.array([[0.8, 0.2]]))
    second = (np.array([[0.3, 0.7]]), np.array([[0.6, 0.4]]))
    found = rank([first, second])
    assert found.ours.tolist() == [0, 1]
    assert found.reference.tolist() == [0, 0]
    assert found.divergences["kl"].shape == (2,)


def test_there_are_no_divergences_where_one_part_has_logits() -> None:
    probabilities = np.array([[0.9, 0.1]])
    logits = np.array([[5.0, -1.0]])
    found = rank([(probabilities, probabilities), (logits, logits)])
    assert found.divergences == {}
