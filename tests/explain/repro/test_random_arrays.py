"""Tests of random arrays of the distribution of others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_mlms.explain.repro.random_arrays import (
    is_float,
    like_histogram,
    like_input,
    like_weights,
)

MANY = 20_000
SOURCES = {
    "normal": lambda random: random.normal(0.3, 2, MANY),
    "uniform": lambda random: random.uniform(-1, 5, MANY),
    "lognormal": lambda random: random.lognormal(0, 1, MANY),
    "two heaps": lambda random: np.where(random.random(MANY) < 0.3, -1.0, 1.0),
    "outlier": lambda random: np.append(random.normal(0, 1, MANY), 1000.0),
    "variances": lambda random: random.gamma(2, 0.1, MANY) + 1e-5,
}


@settings(max_examples=60, deadline=None)
@given(
    source=st.sampled_from(sorted(SOURCES)),
    kind=st.sampled_from([np.float32, np.float64, np.float16, ml_dtypes.bfloat16]),
    zeros=st.sampled_from([0.0, 0.1, 0.9]),
    seed=st.integers(0, 1000),
)
def test_weights_keep_moments_extremes_and_zeros(
    source: str, kind: Any, zeros: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    values = SOURCES[source](random)
    values[random.random(values.size) < zeros] = 0
    array = values.astype(kind)
    drawn = like_weights(array, np.random.default_rng(seed + 1))
    assert (drawn.shape, drawn.dtype) == (array.shape, array.dtype)
    old = array.astype(np.float64)
    new = drawn.astype(np.float64)
    assert old.min() <= new.min()
    assert new.max() <= old.max()
    spread = old.std()
    assert abs(new.mean() - old.mean()) < 0.05 * spread + 0.01 * abs(old.mean())
    # An outlier alone makes its deviation, so it is the one that may be far off.
    assert spread * (0.5 if source in ("outlier", "lognormal") else 0.9) < new.std()
    assert new.std() < 1.2 * spread
    assert abs((new == 0).mean() - (old == 0).mean()) < 0.02


@pytest.mark.parametrize(
    "values", [[], [3.0], [2.0, 2.0, 2.0], [0.0, 0.0], [0.0, -1e4, 0.0], [0.0, -np.inf, 0.0]]
)
def test_what_has_no_distribution_stays(values: list[float]) -> None:
    array = np.array(values, np.float32)
    drawn = like_weights(array, np.random.default_rng(1))
    np.testing.assert_array_equal(drawn, array)


def test_numbers_that_are_not_finite_keep_their_places() -> None:
    array = np.array([1.0, np.nan, -np.inf, 2.0, 3.0], np.float32)
    drawn = like_weights(array, np.random.default_rng(1))
    assert np.isnan(drawn[1])
    assert drawn[2] == -np.inf
    assert np.isfinite(drawn[[0, 3, 4]]).all()
    assert not np.isin(drawn[[0, 3, 4]], [1.0, 2.0, 3.0]).any()


def test_large_arrays_are_drawn_in_parts_alike() -> None:
    array = np.random.default_rng(1).normal(1, 2, (3, 1 << 20)).astype(np.float32)
    drawn = like_weights(array, np.random.default_rng(2))
    assert drawn.shape == array.shape
    for part in drawn:
        assert part.mean() == pytest.approx(1, abs=0.02)


@given(st.lists(st.integers(-128, 127), min_size=2, max_size=50))
def test_a_histogram_has_no_number_that_was_not_there(values: list[int]) -> None:
    array = np.array(values, np.int8)
    drawn = like_histogram(array, np.random.default_rng(3))
    assert drawn.dtype == np.int8
    assert set(drawn.tolist()) <= set(values)


def test_a_histogram_keeps_its_shares() -> None:
    array = np.repeat(np.array([0, 1, 5], np.uint8), [100, 1000, 9000])
    drawn = like_histogram(array, np.random.default_rng(3))
    shares = [(drawn == number).mean() for number in (0, 1, 5)]
    assert shares == pytest.approx([100 / 10100, 1000 / 10100, 9000 / 10100], abs=0.02)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.int8])
def test_whole_numbers_of_an_input_are_drawn_from_its_range(kind: Any) -> None:
    array = np.array([[3, 7], [5, 3]], kind)
    draws = [like_input(array, np.random.default_rng(seed)) for seed in range(200)]
    assert {draw.dtype for draw in draws} == {np.dtype(kind)}
    assert set(np.array(draws).ravel().tolist()) == {3, 4, 5, 6, 7}


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 0), np.float32),
        np.zeros((0,), np.int64),
        np.zeros(0, bool),
        np.ones((2, 2), np.int64),
        np.array(2.5, np.float32),
    ],
)
def test_inputs_of_one_value_or_none_stay(array: NDArray[Any]) -> None:
    drawn = like_input(array, np.random.default_rng(1))
    assert drawn.dtype == array.dtype
    np.testing.assert_array_equal(drawn, array)


def test_truth_values_are_as_often_true() -> None:
    array = np.arange(10_000) % 10 == 0
    drawn = like_input(array, np.random.default_rng(1))
    assert drawn.dtype == bool
    assert drawn.mean() == pytest.approx(0.1, abs=0.02)


def test_real_numbers_are_told_by_their_types() -> None:
    assert is_float(np.dtype(ml_dtypes.float8_e4m3fn))
    assert not is_float(np.dtype(ml_dtypes.int4))
    assert not is_float(np.dtype(np.int32))
