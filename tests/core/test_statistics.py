"""Tests of statistics against values worked by hand, and against scipy where it has the method."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.core.statistics import (
    Interval,
    _signed_rank_quantile,
    change_points,
    is_steady,
    largest_loss,
    middle_of_change,
    percentile_interval,
    persistence,
    pool_rounds,
    rate_interval,
    ratio_of_means,
    samples_for_percentile,
    signed_rank,
    student_interval,
    student_quantile,
    wilson_interval,
)

SHARED_CONFIDENCE = 1 - 0.05 / 3  # of one of three looks
CONFIDENCES = st.sampled_from([0.9, 0.95, SHARED_CONFIDENCE])


def contains(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


def share(truths: Sequence[bool]) -> float:
    return sum(truths) / len(truths)


@given(st.integers(1, 5000), st.data(), CONFIDENCES)
def test_the_wilson_interval_is_scipys(count: int, data: st.DataObject, confidence: float) -> None:
    hits = data.draw(st.integers(0, count))
    expected = scipy.stats.binomtest(hits, count).proportion_ci(confidence, method="wilson")
    interval = wilson_interval(hits, count, confidence)
    assert interval == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_wilson_interval_by_hand() -> None:
    # 8 of 10: p = 0.8, z = 1.96, z2 = 3.8416; centre (0.8 + 0.19208) / 1.38416, half 0.1580 + ...:
    # Newcombe 1998, table I
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


@given(st.lists(st.floats(1, 2), min_size=2, max_size=12), CONFIDENCES)
def test_the_student_interval_is_scipys(values: list[float], confidence: float) -> None:
    interval = student_interval(values, confidence)
    mean = np.mean(values)
    error = scipy.stats.sem(values)
    if error < 1e-12:
        assert interval == pytest.approx((mean, mean))
    else:
        low, high = scipy.stats.t.interval(confidence, len(values) - 1, mean, error)
        assert interval == pytest.approx((max(0, low), high))


def test_the_student_interval_by_hand() -> None:
    # 11, 12, 13: mean 12, deviation 1, t(2 df, 97.5 %) = 4.3027; half = 4.3027 / sqrt(3) = 2.4842
    assert student_interval([11, 12, 13]) == pytest.approx((9.5158, 14.4842), abs=1e-4)


def test_the_student_interval_is_never_below_0() -> None:
    assert student_interval([1, 2, 3]) == pytest.approx((0, 4.4842), abs=1e-4)


def test_a_single_process_has_no_upper_bound() -> None:
    assert student_interval([5.0]) == (0.0, math.inf)
    assert rate_interval([0.1]) == (0.0, math.inf)


def test_the_student_interval_covers_at_its_confidence() -> None:
    generator = np.random.default_rng(1)
    covered = []
    for _ in range(2000):
        values = generator.normal(10, 1, 3).tolist()
        covered.append(contains(student_interval(values), 10))
    assert share(covered) == pytest.approx(0.95, abs=0.02)


def test_the_interval_of_a_rate_by_hand() -> None:
    # 1, 2, 3 s: error of the mean 1 / sqrt(3), of its log half of that, 0.2887; times 4.3027:
    # exp(1.2421) = 3.4628
    expected = (0.5 / 3.4628, 0.5 * 3.4628)
    assert rate_interval([1, 2, 3]) == pytest.approx(expected, rel=1e-4)


def test_a_stalled_process_leaves_the_lower_end_of_a_rate_above_0() -> None:
    seconds = [0.0100, 0.0101, 0.0099, 0.2]
    rates = [1 / each for each in seconds]
    assert student_interval(rates, SHARED_CONFIDENCE).low == 0
    interval = rate_interval(seconds, SHARED_CONFIDENCE)
    mean_rate = 4 / sum(seconds)
    assert 0 < interval.low < mean_rate < interval.high < math.inf


@given(st.lists(st.floats(1e-7, 1e3), min_size=2, max_size=12), CONFIDENCES)
def test_the_interval_of_a_rate_is_symmetric_on_the_scale_of_logs(
    seconds: list[float], confidence: float
) -> None:
    interval = rate_interval(seconds, confidence)
    rate = 1 / np.mean(seconds)
    assert 0 < interval.low <= rate * (1 + 1e-12)
    assert math.isfinite(interval.high)
    assert interval.low * interval.high == pytest.approx(rate**2)


@pytest.mark.parametrize("processes", [3, 6, 12])
@pytest.mark.parametrize("spread", [0.005, 0.05, 0.2, 0.4])
def test_the_interval_of_a_rate_covers_at_its_confidence(processes: int, spread: float) -> None:
    generator = np.random.default_rng(processes)
    log_mean = -(spread**2) / 2  # on average a second each
    seconds = generator.lognormal(log_mean, spread, (4000, processes)).tolist()
    covered = share([contains(rate_interval(row), 1) for row in seconds])
    assert covered == pytest.approx(0.95, abs=0.015)
    if spread > 0.2:  # where the scale matters
        covered_linear = share([contains(student_interval(row), 1) for row in seconds])
        assert covered > covered_linear


@pytest.mark.parametrize(("percentile", "count"), [(90, 29), (95, 59), (99, 299)])
def test_an_upper_bound_of_a_percentile_needs_samples(percentile: float, count: int) -> None:
    assert samples_for_percentile(percentile) == count
    quantile = percentile / 100
    assert 1 - quantile**count >= 0.95
    assert 1 - quantile ** (count - 1) < 0.95


@given(st.integers(1, 3000), st.sampled_from([50, 90, 95, 99]), CONFIDENCES)
def test_the_ends_of_a_percentiles_interval_have_the_ranks_of_scipys_binomial(
    count: int, percent: int, confidence: float
) -> None:
    tail = (1 - confidence) / 2
    ranks = scipy.stats.binom(count, percent / 100).ppf([tail, 1 - tail])
    interval = percentile_interval(np.arange(1, count + 1), percent, confidence)
    assert interval.low == ranks[0]
    assert interval.high == (ranks[1] + 1 if ranks[1] < count else math.inf)


@pytest.mark.parametrize(("percent", "count"), [(50, 20), (90, 87), (99, 897)])
def test_the_interval_of_a_percentile_holds_as_it_says(percent: int, count: int) -> None:
    generator = np.random.default_rng(count)
    truth = -math.log(1 - percent / 100)  # of an exponential distribution
    samples = generator.exponential(size=(4000, count))
    intervals = [percentile_interval(row, percent) for row in samples]
    assert share([interval.low > truth for interval in intervals]) <= 0.025 + 0.008
    assert share([interval.high < truth for interval in intervals]) <= 0.025 + 0.008


@pytest.mark.parametrize(
    ("medians", "steady"),
    [
        ([], False),
        ([5], False),
        ([5, 4], False),
        ([5, 4, 3.95], True),
        ([5, 6], True),
        ([5, 4.89], False),
    ],
)
def test_a_warm_up_is_steady_when_the_median_no_longer_falls(
    medians: list[float], steady: bool
) -> None:
    assert is_steady(medians) is steady


def test_the_signed_rank_interval_by_hand() -> None:
    # Walsh averages of 1, 2, 4, 7, 11, 16: 21 of them, median the 11th. P(T <= 0) = 1/64 < 0.025 <=
    # P(T <= 1) = 2/64: rank 1, so the interval is from the least average to the largest
    values = [1, 2, 4, 7, 11, 16]
    averages = []
    for index, first in enumerate(values):
        averages += [(first + second) / 2 for second in values[index:]]
    centre, low, high = signed_rank(values)
    assert centre == sorted(averages)[10] == 6.5
    assert low == 1
    assert high == 16


def test_five_values_have_no_95_percent_interval() -> None:
    _, low, high = signed_rank([1, 2, 3, 4, 5])
    assert low == -math.inf
    assert high == math.inf


@settings(max_examples=30, deadline=None)
@given(st.integers(6, 45), st.integers(0, 10**6))
def test_the_signed_rank_interval_holds_what_scipys_test_does_not_reject(
    count: int, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(0.3, 1, count)
    centre, low, high = signed_rank(values)
    assert low <= centre <= high
    method = "exact" if count <= 30 else "approx"
    rounding = 0 if count <= 30 else 0.005
    step = 1e-6 * (high - low)
    for inside in (low + step, high - step):
        test = scipy.stats.wilcoxon(values - inside, method=method)
        assert test.pvalue >= 0.05 - rounding
    for outside in (low - step, high + step):
        test = scipy.stats.wilcoxon(values - outside, method=method)
        assert test.pvalue <= 0.05 + rounding


@pytest.mark.parametrize(("count", "significant"), [(5, -1), (6, 0), (10, 8), (20, 52), (30, 137)])
def test_the_counted_signed_rank_distribution_is_that_of_the_tables(
    count: int, significant: int
) -> None:
    # tables of Wilcoxon's test, two-sided 5 %: T is significant up to this
    assert _signed_rank_quantile(count, 0.025) == significant + 1


def test_the_normal_signed_rank_distribution_meets_the_tables() -> None:
    assert _signed_rank_quantile(40, 0.025) == pytest.approx(265, abs=1)  # the table has 264


def test_rounds_are_pooled_as_by_student() -> None:
    values = [0.014, 0.026, 0.020, 0.031]
    pooled = pool_rounds(values)
    assert pooled.freedom == 3
    mean = float(np.mean(values))
    expected = scipy.stats.t.interval(0.9, 3, mean, scipy.stats.sem(values))
    assert (pooled.below(0.05), pooled.above(0.05)) == pytest.approx(expected)


def test_trimmed_rounds_by_hand() -> None:
    # 1, 2, 3, 4, 20 without the least and the largest: mean 3; with these as the next ones 2, 2, 3,
    # 4, 4: squares 1 + 1 + 0 + 1 + 1; error sqrt(4 / 3 / 2)
    pooled = pool_rounds([4.0, 1.0, 20.0, 3.0, 2.0], trimmed=1)
    assert pooled == pytest.approx((3, math.sqrt(4 / 6), 2))


def test_trimming_agrees_with_scipy() -> None:
    values = np.random.default_rng(1).normal(0.01, 0.02, 12)
    pooled = pool_rounds(list(values), trimmed=2)
    found = scipy.stats.ttest_ind(values, [0.0] * 12, equal_var=False, trim=2 / 12)
    assert pooled.mean / pooled.error == pytest.approx(found.statistic)


def test_one_wrong_round_of_seven_changes_a_trimmed_mean_little() -> None:
    values = [0.0, 0.001, -0.001, 0.002, -0.002, 0.001]
    right = pool_rounds([*values, 0.003], trimmed=1)
    wrong = pool_rounds([*values, 0.34], trimmed=1)
    assert wrong == right


def test_nothing_is_known_of_the_error_of_a_single_round() -> None:
    assert pool_rounds([0.5]) == (0.5, math.inf, 1)


def test_independent_values_have_no_persistence() -> None:
    noise = np.random.default_rng(0).normal(size=500)
    assert persistence(noise) == 1
    assert persistence(np.ones(9)) == 1
    assert persistence(np.array([1.0, 2.0])) == 1


def test_persistence_grows_as_neighbours_are_alike() -> None:
    noise = np.random.default_rng(0).normal(size=500)
    walk = [0.0]
    for step in noise:
        walk.append(0.8 * walk[-1] + step)
    expected = math.sqrt(1.8 / 0.2)
    assert persistence(np.array(walk)) == pytest.approx(expected, rel=0.25)


def test_the_ratio_of_means_by_hand() -> None:
    # means 2 and 1; a/2 - b = (0, 0, 0): no error at all
    found = ratio_of_means(np.array([1.0, 2, 3]), np.array([0.5, 1, 1.5]))
    assert found == pytest.approx((math.log(2), 0))


def test_the_error_of_a_ratio_of_means_is_that_of_a_simulation() -> None:
    generator = np.random.default_rng(1)
    values = []
    errors = []
    for _ in range(500):
        above = generator.normal(2, 0.2, 50)
        below = generator.normal(1, 0.05, 50)
        value, error = ratio_of_means(above, below)
        values.append(value)
        errors.append(error)
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.1)


def test_the_largest_loss_without_changes_is_exact() -> None:
    assert largest_loss(0, 0, 298, 0.05) > 0.01
    assert largest_loss(0, 0, 299, 0.05) < 0.01
    assert largest_loss(0, 0, 20, 0.05) == pytest.approx(1 - 0.05 ** (1 / 20))


@pytest.mark.parametrize(("lost", "won", "count"), [(12, 2, 44), (40, 30, 500), (9, 20, 100)])
def test_the_largest_loss_is_tangos_bound_where_much_changed(
    lost: int, won: int, count: int
) -> None:
    bound = largest_loss(lost, won, count, 0.025)

    def improbability(share_won: float) -> float:
        same = 1 - 2 * share_won - bound
        logs = np.log([share_won + bound, share_won, same])
        return -float(np.dot([lost, won, count - lost - won], logs))

    ends = max(0.0, -bound) + 1e-9, (1 - bound) / 2 - 1e-9
    likeliest = scipy.optimize.minimize_scalar(improbability, bounds=ends, options={"xatol": 1e-9})
    variance = count * (2 * likeliest.x + bound * (1 - bound))
    score = (lost - won - count * bound) / math.sqrt(variance)
    assert score == pytest.approx(scipy.stats.norm.ppf(0.025), abs=1e-3)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 60))
def test_the_largest_loss_is_not_below_the_observed_one_and_falls_with_the_risk(
    lost: int, won: int, same: int
) -> None:
    count = lost + won + same
    bold = largest_loss(lost, won, count, 0.05)
    careful = largest_loss(lost, won, count, 0.01)
    assert (lost - won) / count <= bold <= careful <= 1


@pytest.mark.parametrize("count", [100, 300, 1000])
@pytest.mark.parametrize("tolerance", [0.01, 0.03])
@pytest.mark.parametrize("share_won", [0.0, 0.005, 0.03])
def test_the_bounds_of_a_loss_at_the_tolerance_hold_their_risks(
    count: int, tolerance: float, share_won: float
) -> None:
    passed = 0.0
    regressed = 0.0
    share_lost = tolerance + share_won
    most = int(count * share_lost * 2 + 12)
    for lost in range(most):
        for won in range(most):
            probability = scipy.stats.multinomial.pmf(
                [lost, won, count - lost - won],
                count,
                [share_lost, share_won, 1 - share_lost - share_won],
            )
            if probability < 1e-5:
                continue
            passed += probability * (largest_loss(lost, won, count, 0.04) < tolerance)
            regressed += probability * (-largest_loss(won, lost, count, 0.004) > tolerance)
    assert passed < 0.05
    assert regressed < 0.0105


def test_students_quantile_is_scipys() -> None:
    assert student_quantile(9, 0.998) == pytest.approx(scipy.stats.t.ppf(0.998, 9))


def levels(*parts: tuple[int, float], scatter: float = 0.1) -> np.ndarray:
    generator = np.random.default_rng(len(parts))
    values = np.concatenate([np.full(count, value) for count, value in parts])
    return np.asarray(values + scatter * generator.normal(size=len(values)))


@pytest.mark.parametrize("place", [5, 20, 35])
def test_a_change_of_level_is_found_where_it_is(place: int) -> None:
    assert change_points(levels((place, 1.0), (40 - place, 2.0))) == [place]


def test_levels_that_come_back_are_found() -> None:
    assert change_points(levels((12, 1.0), (8, 2.0), (20, 1.0))) == [12, 20]


@pytest.mark.parametrize("count", [0, 1, 9, 30])
def test_equal_values_have_no_change(count: int) -> None:
    assert change_points(np.ones(count)) == []


def test_up_to_four_outliers_in_a_row_are_no_level() -> None:
    values = levels((40, 1.0))
    values[[0, 7, 8, 9, 10, 39]] = 50
    assert change_points(values) == []


def test_a_change_below_the_floor_is_none() -> None:
    values = levels((20, 1.0), (20, 1.05), scatter=0.001)
    assert change_points(values) == [20]
    assert change_points(values, floor=0.1) == []


def test_independent_values_seldom_seem_to_change() -> None:
    generator = np.random.default_rng(0)
    found = 0
    for _ in range(500):
        found += bool(change_points(generator.normal(size=26)))
    assert found <= 0.01 * 500


@given(st.lists(st.integers(-5, 5), max_size=40), st.floats(0.1, 10))
def test_changes_are_inside_and_at_least_five_values_apart(
    values: list[int], factor: float
) -> None:
    found = change_points(factor * np.array(values, float))
    assert all(np.diff([0, *found, len(values)]) >= 5) or not found


def test_the_middle_of_a_slow_change_is_found() -> None:
    generator = np.random.default_rng(0)
    values = np.linspace(1.0, 0.9, 36) + 0.03 * generator.normal(size=36)
    assert 10 < middle_of_change(values) < 26


@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_equal_values_have_no_middle_of_a_change(count: int) -> None:
    assert middle_of_change(np.ones(count)) == 0


def test_independent_values_change_as_seldom_as_the_risk() -> None:
    generator = np.random.default_rng(0)
    found = 0
    for _ in range(1000):
        found += middle_of_change(generator.normal(size=32), risk=0.05) > 0
    assert found <= 60


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=40), st.floats(0.1, 10))
def test_the_middle_of_a_change_goes_by_ranks_alone(values: list[int], factor: float) -> None:
    data = np.array(values, float)
    assert middle_of_change(np.exp(factor * data)) == middle_of_change(data)
