"""Differences from the reference's outputs, best classes, and divergences."""

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

from pytest_mlms.core.quantities import quantities_of
from pytest_mlms.measure.evaluate import agreement
from pytest_mlms.measure.evaluate.agreement import (
    Value,
    are_probabilities,
    compare,
    divergences,
    estimate_agreement,
    most_different,
    rank,
)
from pytest_mlms.measure.evaluate.closeness import Tolerance, differences

USUAL = Tolerance(1e-4, 1e-5)
SPECIAL = st.sampled_from([0.0, 1.0, 1.00009, 1.0002, -1.0])
ELEMENTS = st.floats(width=32, allow_nan=True, allow_infinity=True) | SPECIAL


def pairs_of_arrays(rows: int) -> Any:
    array = arrays(np.float32, (rows, 3), elements=ELEMENTS)
    return st.tuples(array, array)


PAIRS = st.integers(1, 6).flatmap(pairs_of_arrays)
TOLERANCES = st.builds(
    Tolerance, st.sampled_from([0, 1e-6, 1e-4, 1.0]), st.sampled_from([0, 1e-9, 1e-5, 1.0])
)


@given(PAIRS, TOLERANCES)
def test_a_deviation_of_at_most_one_is_numpys_closeness(both: Any, tolerance: Tolerance) -> None:
    ours, reference = both
    deviation = differences(ours, reference, tolerance).deviation
    a = ours.astype(float)
    b = reference.astype(float)
    close = np.isclose(a, b, rtol=tolerance.rtol, atol=tolerance.atol)
    assert np.array_equal(deviation <= 1, close)


@given(PAIRS)
def test_a_difference_is_a_number_or_infinite(both: Any) -> None:
    ours, reference = both
    found = differences(ours, reference, USUAL)
    assert (found.absolute >= 0).all()
    assert (found.deviation >= 0).all()
    assert np.array_equal(np.isnan(found.relative), reference == 0)
    assert np.isinf(found.absolute[np.isnan(ours)]).all()


@given(PAIRS)
def test_equal_elements_do_not_differ(both: Any) -> None:
    known = both[0][~np.isnan(both[0])]
    assert not differences(known, known, USUAL).absolute.any()


@given(PAIRS, st.integers(1, 64))
def test_chunks_change_neither_the_largest_differences_nor_the_means(
    both: Any, chunk_bytes: int
) -> None:
    ours, reference = both
    ones = np.ones_like(ours)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "_CHUNK_BYTES", chunk_bytes)
        found = compare({"a": ours, "b": ones}, {"a": reference, "b": ones}, USUAL)
    whole = differences(ours, reference, USUAL)
    assert np.array_equal(found.absolute, whole.absolute.max(axis=1))
    assert np.array_equal(found.deviation, whole.deviation.max(axis=1))
    equal_output = np.zeros_like(whole.absolute)
    mean = np.concatenate([whole.absolute, equal_output]).mean()
    assert found.absolute_mean == pytest.approx(mean)


def test_a_relative_difference_leaves_out_a_reference_of_0() -> None:
    ours = {"y": np.array([[0.5, 1.1]])}
    reference = {"y": np.array([[0.0, 1.0]])}
    found = compare(ours, reference, USUAL)
    assert found.relative[0] == pytest.approx(0.1)
    assert found.relative_mean == pytest.approx(0.1)
    assert found.absolute[0] == 0.5


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_whole_numbers_are_compared_exactly(dtype: str) -> None:
    reference = np.array([[1, 0, 1]], dtype)
    ours = np.array([[1, 1, 1]], dtype)
    assert np.isinf(differences(ours, reference, Tolerance(0.5, 0.9)).deviation[0, 1])
    assert differences(ours, reference, Tolerance(0.0, 1.0)).deviation.max() <= 1


def test_large_whole_numbers_that_float64_can_not_tell_apart_differ() -> None:
    reference = np.array([2**53 + 1])
    assert np.isinf(differences(reference - 1, reference, USUAL).deviation[0])


@pytest.mark.parametrize(
    ("ours", "reference", "off"),
    [
        (np.array([2**60 + 100]), np.array([2**60]), 100),
        (np.array([2**63 - 1]), np.array([-(2**63)]), 2**64),
        (np.array([2**64 - 3], np.uint64), np.array([2**64 - 1], np.uint64), 2),
        (np.array([0], np.uint8), np.array([255], np.uint8), 255),
        (np.array([True]), np.array([False]), 1),
        (np.array([-3], np.int32), np.array([2**60]), 2**60 + 3),
    ],
)
def test_whole_numbers_are_as_far_apart_as_they_are_whatever_their_size(
    ours: Any, reference: Any, off: int
) -> None:
    for a, b in ((ours, reference), (reference, ours)):
        found = differences(a, b, Tolerance(0.0, 1.0))
        assert found.absolute.tolist() == found.deviation.tolist() == [float(off)]


def test_complex_values_differ_in_their_imaginary_parts() -> None:
    found = differences(np.array([1 + 2j]), np.array([1 + 1j]), USUAL)
    assert found.absolute[0] == 1


PROBABILITIES = np.array([[0.2, 0.8], [0.4, 0.6]])
OURS = np.array([[0.2, 0.8], [0.6, 0.4]])
FOUND = compare({"y": OURS}, {"y": PROBABILITIES}, USUAL)
BOTH = (OURS, PROBABILITIES)
RANKING = rank([(BOTH, BOTH)])


def test_every_quantity_of_agreement_has_an_estimator() -> None:
    names = {quantity.name for quantity in quantities_of("agreement")}
    assert set(estimate_agreement(FOUND, RANKING)) == names


def test_a_share_of_inputs_has_an_interval() -> None:
    found = estimate_agreement(FOUND, RANKING)
    share = found["same_top1"]
    assert share.value == 0.5
    assert share.low < 0.5 < share.high
    assert share.replicates == 2


def test_values_over_all_inputs_are_exact() -> None:
    found = estimate_agreement(FOUND, RANKING)
    largest = found["difference_max"]
    assert largest.value == pytest.approx(0.2)
    assert largest.low == largest.value
    assert largest.high == largest.value
    assert found["difference_mean"].value == pytest.approx(0.1)
    divergence = 0.2 * math.log(1.5)  # of one of the two inputs
    assert found["kl_max"].value == pytest.approx(divergence)
    assert found["kl_mean"].value == pytest.approx(divergence / 2)


def test_without_scores_there_are_differences_only() -> None:
    assert "same_top1" not in estimate_agreement(FOUND, None)


def test_logits_have_no_divergence() -> None:
    logits = np.array([[3.0, -1.0]])
    found = compare({"y": logits}, {"y": logits}, USUAL)
    same = (logits, logits)
    estimates = estimate_agreement(found, rank([(same, same)]))
    assert estimates["same_top1"].value == 1
    assert "write the step softmax" in estimates["js_max"].lacking


def test_the_values_that_differ_most_come_first_with_their_place() -> None:
    reference = {"y": np.array([[1.0, 2.0], [3.0, 4.0]]), "z": np.array([5.0])}
    ours = {"y": np.array([[1.0, 2.5], [3.0, 4.1]]), "z": np.array([5.2])}
    assert most_different(ours, reference, USUAL, 2) == [
        Value("y", (0, 1), 2.5, 2.0),
        Value("z", (0,), 5.2, 5.0),
    ]


def test_texts_that_differ_are_shown_as_they_are() -> None:
    sides = {"y": np.array(["cat", "dog"])}, {"y": np.array(["cat", "eel "])}
    assert most_different(*sides, USUAL) == [Value("y", (1,), "dog", "eel ")]
    assert compare(*sides, USUAL).deviation.tolist() == [0, math.inf]


def test_quantised_probabilities_have_divergences_though_their_sums_are_rounded() -> None:
    rows = np.array([[0.5, 0.25, 0.21875], [0.0, 0.96875, 0.0]])  # of 1/32
    pair = [((rows, rows), (rows, rows[:, [0, 2, 1]]))]
    assert rank(pair).divergences == {}
    assert rank(pair, 1 / 32).divergences["kl"][0] == pytest.approx(
        0.03125 / 0.96875 * math.log(0.25 / 0.21875)
    )
    logits = [((rows * 4, rows * 4), (rows * 4, rows * 4))]
    assert rank(logits, 1 / 32).divergences == {}
    lost = [((rows, rows), (np.array([[1.0, 0.0]]), np.array([[31 / 32, 1 / 32]])))]
    assert rank(lost, 1 / 32).divergences["kl"][0] < 0.01, "a 0 is less than half of a step"
    assert are_probabilities(np.array([[128, 128]]) * 0.00392156863, 0.00392156863)
    assert not are_probabilities(np.zeros((1, 1000)), 1.0)
    assert not are_probabilities(np.pad(rows * 1.4, ((0, 0), (0, 997))), 1 / 32), "of three numbers"


def test_equal_outputs_have_no_values_that_differ() -> None:
    reference = {"y": np.array([[1.0, 2.0], [3.0, 4.0]])}
    assert most_different(reference, reference, USUAL) == []


SCORES = st.floats(-60, 60, width=32)


def logits(rows: int) -> Any:
    return arrays(np.float32, (rows, 4), elements=SCORES)


def pairs_of_logits(rows: int) -> Any:
    return st.tuples(logits(rows), logits(rows))


def probabilities(values: np.ndarray) -> np.ndarray:
    return np.asarray(softmax(values, axis=1))


LOGITS = st.integers(1, 5).flatmap(logits)
BOTH_SIDES = st.integers(1, 5).flatmap(pairs_of_logits)
LOG_2 = math.log(2)


@given(BOTH_SIDES)
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


@given(BOTH_SIDES)
def test_divergences_are_bounded(both: Any) -> None:
    q, p = map(probabilities, both)
    found = divergences(q, p)
    assert found["kl"].min() >= 0
    assert np.isfinite(found["kl"]).all()
    assert found["js"].min() >= 0
    assert found["js"].max() <= LOG_2
    assert found["hellinger"].min() >= 0
    assert found["hellinger"].max() <= 1


@given(BOTH_SIDES)
def test_hellinger_is_bounded_by_jensen_shannon(both: Any) -> None:
    # Lin 1991; Topsøe 2000
    q, p = map(probabilities, both)
    found = divergences(q, p)
    bound = found["js"] / LOG_2 + 1e-9
    squared = found["hellinger"] ** 2
    assert (squared <= bound).all()


@given(BOTH_SIDES)
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
