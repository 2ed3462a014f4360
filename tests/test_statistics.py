"""Against values worked by hand, and against scipy where scipy has the piece."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.statistics import is_steady, samples_for_percentile, student_interval, wilson_interval


@given(st.integers(1, 5000), st.data(), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_wilson_interval_is_scipys(count: int, data: st.DataObject, confidence: float) -> None:
    hits = data.draw(st.integers(0, count))
    wanted = scipy.stats.binomtest(hits, count).proportion_ci(confidence, method="wilson")
    assert wilson_interval(hits, count, confidence) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


def test_the_wilson_interval_by_hand() -> None:
    # 8 of 10: p = 0.8, z = 1.96, z2 = 3.8416; centre (0.8 + 0.19208) / 1.38416, half 0.1580 + ...: Newcombe 1998, table I
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


@given(st.lists(st.floats(1, 2), min_size=2, max_size=12), st.sampled_from([0.9, 0.95, 1 - 0.05 / 3]))
def test_the_student_interval_is_scipys(values: list[float], confidence: float) -> None:
    low, high = student_interval(values, confidence)
    error = scipy.stats.sem(values)
    if error < 1e-12:
        assert (low, high) == pytest.approx((np.mean(values), np.mean(values)))
    else:
        wanted = scipy.stats.t.interval(confidence, len(values) - 1, np.mean(values), error)
        assert (low, high) == pytest.approx((max(0, wanted[0]), wanted[1]))


def test_the_student_interval_by_hand() -> None:
    # 1, 2, 3: mean 2, deviation 1, t(2 df, 97.5 %) = 4.3027; half = 4.3027 / sqrt(3) = 2.4842, and never below 0
    assert student_interval([1, 2, 3]) == pytest.approx((0, 4.4842), abs=1e-4)
    assert student_interval([11, 12, 13]) == pytest.approx((9.5158, 14.4842), abs=1e-4)


def test_one_process_tells_nothing_of_the_spread() -> None:
    assert student_interval([5.0]) == (0.0, math.inf)


def test_the_student_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        low, high = student_interval(rng.normal(10, 1, 3).tolist())
        covered += low <= 10 <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(("percentile", "count"), [(90, 29), (95, 59), (99, 299)])
def test_a_percentile_needs_so_many_samples_for_an_upper_bound(percentile: float, count: int) -> None:
    assert samples_for_percentile(percentile) == count
    quantile = percentile / 100
    assert 1 - quantile**count >= 0.95 > 1 - quantile ** (count - 1)


@pytest.mark.parametrize(
    ("medians", "steady"),
    [([], False), ([5], False), ([5, 4], False), ([5, 4, 3.95], True), ([5, 6], True), ([5, 4.89], False)],
)
def test_a_warm_up_is_over_when_the_median_no_longer_falls(medians: list[float], steady: bool) -> None:
    assert is_steady(medians) is steady
