"""Differences, divergences and the layer that departs, against numpy, scipy and arithmetic by hand."""

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

from pytest_mlms.evaluate import agreement
from pytest_mlms.evaluate.agreement import (
    Tolerance,
    Value,
    are_probabilities,
    compare,
    differences,
    divergences,
    estimate_agreement,
    find_departure,
    most_different,
    rank,
)

USUAL = Tolerance(1e-4, 1e-5)
floats = st.floats(width=32, allow_nan=True, allow_infinity=True) | st.sampled_from(
    [0.0, 1.0, 1.00009, 1.0002, -1.0]
)
pairs = st.integers(1, 6).flatmap(
    lambda n: st.tuples(*[arrays(np.float32, (n, 3), elements=floats)] * 2)
)
tolerances = st.builds(
    Tolerance, st.sampled_from([0, 1e-6, 1e-4, 1.0]), st.sampled_from([0, 1e-9, 1e-5, 1.0])
)
logits = arrays(
    np.float32, st.tuples(st.integers(1, 5), st.just(4)), elements=st.floats(-60, 60, width=32)
)
two_logits = st.integers(1, 5).flatmap(
    lambda n: st.tuples(*[arrays(np.float32, (n, 4), elements=st.floats(-60, 60, width=32))] * 2)
)


@given(pairs, tolerances)
def test_a_deviation_of_at_most_one_is_numpys_closeness(both: Any, tolerance: Tolerance) -> None:
    ours, reference = both
    deviation = differences(ours, reference, tolerance)[2]
    close = np.isclose(
        ours.astype(float), reference.astype(float), rtol=tolerance.rtol, atol=tolerance.atol
    )
    assert np.array_equal(deviation <= 1, close)


@given(pairs)
def test_a_difference_is_a_number_or_infinite_and_none_is_none(both: Any) -> None:
    ours, reference = both
    absolute, relative, deviation = differences(ours, reference, USUAL)
    assert (absolute >= 0).all()
    assert (deviation >= 0).all()
    assert np.array_equal(np.isnan(relative), reference == 0)
    assert not differences(ours[~np.isnan(ours)], ours[~np.isnan(ours)], USUAL)[0].any()
    assert np.isinf(absolute[np.isnan(ours)]).all()


@given(pairs, st.integers(1, 64))
def test_the_largest_and_the_mean_are_over_all_outputs_however_many_rows_at_a_time(
    both: Any, chunk: int
) -> None:
    ours, reference = both
    kept, agreement._CHUNK = agreement._CHUNK, chunk
    try:
        found = compare(
            {"a": ours, "b": np.ones_like(ours)},
            {"a": reference, "b": np.ones_like(reference)},
            USUAL,
        )
    finally:
        agreement._CHUNK = kept
    absolute, _, deviation = differences(ours, reference, USUAL)
    other = differences(np.ones_like(ours), np.ones_like(reference), USUAL)
    assert np.array_equal(found.absolute, np.maximum(absolute.max(axis=1), other[0].max(axis=1)))
    assert np.array_equal(found.deviation, np.maximum(deviation.max(axis=1), other[2].max(axis=1)))
    assert found.absolute_mean == pytest.approx(np.concatenate([absolute, other[0]]).mean())


def test_a_relative_difference_leaves_out_where_the_reference_is_nothing() -> None:
    found = compare({"y": np.array([[0.5, 1.1]])}, {"y": np.array([[0.0, 1.0]])}, USUAL)
    assert found.relative[0] == pytest.approx(0.1)
    assert found.relative_mean == pytest.approx(0.1)
    assert found.absolute[0] == 0.5


@given(two_logits)
def test_divergences_are_scipys(both: Any) -> None:
    q, p = (softmax(each.astype(float), axis=1) for each in both)
    found = divergences(q, p)
    assert found["kl"] == pytest.approx(entropy(p, q, axis=1), abs=1e-12)
    with np.errstate(invalid="ignore"):  # scipy takes the root of a rounding below 0
        theirs = np.nan_to_num(jensenshannon(p, q, axis=1)) ** 2
    assert found["js"] == pytest.approx(theirs, abs=1e-12)
    assert found["hellinger"] == pytest.approx(
        np.linalg.norm(np.sqrt(p) - np.sqrt(q), axis=1) / math.sqrt(2)
    )


@given(two_logits)
def test_divergences_are_bounded_symmetric_where_they_should_be_and_nothing_of_equals(
    both: Any,
) -> None:
    q, p = (softmax(each, axis=1) for each in both)
    there, back, same = divergences(q, p), divergences(p, q), divergences(p, p)
    assert (there["kl"] >= 0).all()
    assert np.isfinite(there["kl"]).all()
    assert ((there["js"] >= 0) & (there["js"] <= math.log(2))).all()
    assert ((there["hellinger"] >= 0) & (there["hellinger"] <= 1)).all()
    assert there["js"] == pytest.approx(back["js"], abs=1e-12)
    assert there["hellinger"] == pytest.approx(back["hellinger"], abs=1e-12)
    assert all(values == pytest.approx(0, abs=1e-7) for values in same.values())
    assert (
        there["hellinger"] ** 2 <= there["js"] / math.log(2) + 1e-9
    ).all()  # Lin 1991; Topsøe 2000


def test_zeros_are_less_than_float32_can_say_and_nothing_is_infinite() -> None:
    found = divergences(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]]))
    assert found["kl"][0] == pytest.approx(-math.log(np.finfo(np.float32).tiny))
    assert found["js"][0] == pytest.approx(math.log(2))
    assert found["hellinger"][0] == 1
    assert divergences(np.array([[0.5, 0.5, 0]]), np.array([[0.5, 0.5, 0]]))["kl"][0] == 0


@given(logits)
def test_probabilities_are_told_from_logits(values: np.ndarray) -> None:
    assert are_probabilities(softmax(values, axis=1))
    assert are_probabilities(softmax(values, axis=1).astype(np.float16))
    assert not are_probabilities(values - values.max() - 1)
    assert not are_probabilities(np.full((2, 2), np.nan))


def test_estimates_say_what_is_exact_and_what_has_an_interval() -> None:
    ours, reference = np.array([[0.2, 0.8], [0.6, 0.4]]), np.array([[0.2, 0.8], [0.4, 0.6]])
    found = estimate_agreement(
        compare({"y": ours}, {"y": reference}, USUAL), rank([(ours, reference)])
    )
    assert found["same_top1"].value == 0.5
    assert found["same_top1"].low < 0.5 < found["same_top1"].high
    assert found["difference_max"].value == found["difference_max"].low == pytest.approx(0.2)
    assert found["difference_mean"].value == pytest.approx(0.1)
    assert found["kl_max"].value == pytest.approx(0.2 * math.log(1.5))
    assert found["kl_mean"].value == pytest.approx(0.1 * math.log(1.5))
    assert {estimate.replicates for estimate in found.values()} == {2}


def test_without_scores_there_are_differences_only_and_logits_have_no_divergence() -> None:
    values = np.array([[3.0, -1.0]])
    found = compare({"y": values}, {"y": values}, USUAL)
    assert "same_top1" not in estimate_agreement(found, None)
    estimates = estimate_agreement(found, rank([(values, values)]))
    assert estimates["same_top1"].value == 1
    assert "write the step softmax" in estimates["js_max"].lacking


def test_the_values_that_differ_most_come_first_with_their_place() -> None:
    reference = {"y": np.array([[1.0, 2.0], [3.0, 4.0]]), "z": np.array([5.0])}
    ours = {"y": np.array([[1.0, 2.5], [3.0, 4.1]]), "z": np.array([5.2])}
    assert most_different(ours, reference, USUAL, 2) == [
        Value("y", (0, 1), 2.5, 2.0),
        Value("z", (0,), 5.2, 5.0),
    ]
    assert most_different(reference, reference, USUAL) == []


RANDOM = np.random.default_rng(7)
CONV, POOL, DENSE = (
    RANDOM.standard_normal(shape) for shape in ((2, 3, 4, 4), (2, 3, 2, 2), (2, 5))
)
REFERENCE = [("conv", CONV), ("relu", np.maximum(CONV, 0)), ("pool", POOL), ("dense", DENSE)]


def test_the_first_layer_that_departs_is_found_by_name() -> None:
    ours = [
        ("conv", CONV),
        ("relu", np.maximum(CONV, 0)),
        ("pool", POOL + 0.5),
        ("dense", DENSE * 2),
    ]
    found = find_departure(ours, REFERENCE, USUAL)
    assert found is not None
    assert (found.layer, found.ours, found.after) == ("pool", "pool", ("relu", "relu"))
    assert found.difference == pytest.approx(0.5)


def test_layers_of_other_names_fused_and_with_the_channels_last_are_found_by_shape_and_order() -> (
    None
):
    ours = [
        ("a", np.moveaxis(np.maximum(CONV, 0), 1, -1)),
        ("b", np.moveaxis(POOL, 1, -1)),
        ("c", DENSE + 1),
    ]
    found = find_departure(ours, REFERENCE, USUAL)
    assert found is not None
    assert (found.layer, found.ours, found.after) == ("dense", "c", ("pool", "b"))


def test_layers_that_agree_or_can_not_be_matched_depart_nowhere() -> None:
    assert find_departure(REFERENCE, REFERENCE, USUAL) is None
    assert find_departure([("other", np.zeros(7))], REFERENCE, USUAL) is None
    assert find_departure([], REFERENCE, USUAL) is None
    rounded = [(name, values * (1 + 1e-6)) for name, values in REFERENCE]
    assert find_departure(rounded, REFERENCE, USUAL) is None


@given(st.integers(0, 3))
def test_whichever_layer_goes_wrong_is_the_one_that_is_named(wrong: int) -> None:
    ours = [
        (name, values + (1 + 0.1 * i if i >= wrong else 0))
        for i, (name, values) in enumerate(REFERENCE)
    ]
    found = find_departure(ours, REFERENCE, USUAL)
    assert found is not None
    assert found.layer == REFERENCE[wrong][0]
