"""Tests of the first points with another software."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.keep.history.blocks import Blocks
from pytest_mlms.keep.history.significance import (
    ALARM_RISK,
    accepted_p_value,
    predict,
    predict_next,
)

seeds = st.integers(0, 2**32 - 1)


@given(seed=seeds, before=st.integers(2, 30), step=st.floats(-0.2, 0.2))
def test_one_new_point_is_judged_as_by_the_test_of_two_samples(
    seed: int, before: int, step: float
) -> None:
    values = np.random.default_rng(seed).normal(0, 0.02, before + 1)
    values[-1] += step
    expected = scipy.stats.ttest_ind(values[-1:], values[:-1])
    assert predict(Blocks(values, [0]), before, 1, 0.0).p_value == pytest.approx(expected.pvalue)


@pytest.mark.parametrize(("length", "alike"), [(1, 0.0), (1, 0.3), (2, 0.0), (3, 0.0), (3, 0.3)])
def test_a_night_without_a_change_is_seldom_far_off(length: int, alike: float) -> None:
    rng = np.random.default_rng(5)
    far = 0
    for _ in range(1000):
        values = rng.normal(0, 0.02, 40)
        for night in range(1, 40):
            values[night] = alike * values[night - 1] + np.sqrt(1 - alike**2) * values[night]
        blocks = Blocks(values[-10 - length :], [0])
        far += predict(blocks, 10, length, 0.0).p_value <= 0.05
    assert far <= 90


def test_the_interval_of_a_prediction_has_the_next_point_as_often_as_it_says() -> None:
    rng = np.random.default_rng(6)
    inside = 0
    for _ in range(1000):
        values = rng.normal(0, 0.02, 11)
        prediction = predict(Blocks(values, [0]), 10, 1, 0.0)
        inside += abs(prediction.change) <= prediction.half(0.05)
    assert 930 <= inside <= 970


def test_a_step_that_is_said_to_be_seen_is_four_times_of_five() -> None:
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(500):
        values = rng.normal(0, 0.02, 11)
        blocks = Blocks(values[:10], [0])
        values[10] += predict_next(blocks, 10, 0.004).seen(ALARM_RISK, 0.03)
        prediction = predict(Blocks(values, [0]), 10, 1, 0.004)
        found += prediction.p_value <= ALARM_RISK and prediction.change > 0.03
    assert 370 <= found <= 430


def test_an_outlier_among_few_nights_widens_what_the_next_one_may_be() -> None:
    values = np.random.default_rng(8).normal(0, 0.005, 11)
    values[10] += 0.08
    assert predict(Blocks(values, [0]), 10, 1, 0.0).p_value < ALARM_RISK
    values[4] += 0.3
    assert predict(Blocks(values, [0]), 10, 1, 0.0).p_value > 0.1


def test_equal_nights_have_the_least_deviation_and_no_certainty() -> None:
    values = np.zeros(11)
    values[10] = 0.01
    prediction = predict(Blocks(values, [0]), 10, 1, 0.006)
    assert prediction == pytest.approx((0.01, 0.006 * 1.1**0.5, 9))
    assert prediction.p_value > 0.1


@given(st.lists(st.floats(1e-9, 1), min_size=1, max_size=40), st.sampled_from([1e-3, 0.05, 0.3]))
def test_risks_of_a_night_count_as_by_benjamini_and_hochberg(
    risks: list[float], level: float
) -> None:
    adjusted = scipy.stats.false_discovery_control(risks)
    limit = accepted_p_value(risks, len(risks), level)
    for risk, other in zip(risks, adjusted, strict=True):
        if abs(other - level) > 1e-12:
            assert (risk <= limit) == (other <= level)


def test_a_release_that_changes_all_series_needs_the_level_alone_in_each() -> None:
    assert accepted_p_value([7e-4] * 50, 50, 1e-3) == 7e-4
    assert accepted_p_value([7e-4], 50, 1e-3) == 0
    assert accepted_p_value([1e-5], 50, 1e-3) == 1e-5
    assert accepted_p_value([7e-4], 50, 1e-3, known=40) == 7e-4
    assert accepted_p_value([], 50, 1e-3) == 0
