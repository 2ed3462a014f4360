"""Against values worked by hand, and against scipy where scipy has the piece."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.statistics import (
    _signed_rank_quantile,
    is_steady,
    matched_difference,
    mcnemar,
    persistence,
    pool_rounds,
    quantile_ratio,
    rate_interval,
    ratio_of_means,
    samples_for_percentile,
    signed_rank,
    student_interval,
    student_quantile,
    wilson_interval,
)


@given(st.integers(1, 5000), st.data(), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_wilson_interval_is_scipys(count: int, data: st.DataObject, confidence: float) -> None:
    hits = data.draw(st.integers(0, count))
    wanted = scipy.stats.binomtest(hits, count).proportion_ci(confidence, method="wilson")
    assert wilson_interval(hits, count, confidence) == pytest.approx(
        (wanted.low, wanted.high), abs=1e-12
    )


def test_the_wilson_interval_by_hand() -> None:
    # 8 of 10: p = 0.8, z = 1.96, z2 = 3.8416; centre (0.8 + 0.19208) / 1.38416, half 0.1580 + ...:
    # Newcombe 1998, table I
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


@given(
    st.lists(st.floats(1, 2), min_size=2, max_size=12), st.sampled_from([0.9, 0.95, 1 - 0.05 / 3])
)
def test_the_student_interval_is_scipys(values: list[float], confidence: float) -> None:
    low, high = student_interval(values, confidence)
    error = scipy.stats.sem(values)
    if error < 1e-12:
        assert (low, high) == pytest.approx((np.mean(values), np.mean(values)))
    else:
        wanted = scipy.stats.t.interval(confidence, len(values) - 1, np.mean(values), error)
        assert (low, high) == pytest.approx((max(0, wanted[0]), wanted[1]))


def test_the_student_interval_by_hand() -> None:
    # 1, 2, 3: mean 2, deviation 1, t(2 df, 97.5 %) = 4.3027; half = 4.3027 / sqrt(3) = 2.4842, and
    # never below 0
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


def test_the_interval_of_a_rate_by_hand() -> None:
    # 1, 2, 3 s: error of the mean 1 / sqrt(3), of its log half of that, 0.2887; times 4.3027:
    # exp(1.2421) = 3.4628
    assert rate_interval([1, 2, 3]) == pytest.approx((0.5 / 3.4628, 0.5 * 3.4628), rel=1e-4)
    assert rate_interval([0.1]) == (0.0, math.inf)


def test_a_stalled_process_leaves_a_rate_above_0() -> None:
    stalled, confidence = [0.0100, 0.0101, 0.0099, 0.2], 1 - 0.05 / 3
    assert (
        student_interval([1 / seconds for seconds in stalled], confidence)[0] == 0
    )  # where nothing can pass
    low, high = rate_interval(stalled, confidence)
    assert 0 < low < 4 / sum(stalled) < high < math.inf


@given(
    st.lists(st.floats(1e-7, 1e3), min_size=2, max_size=12), st.sampled_from([0.95, 1 - 0.05 / 3])
)
def test_the_interval_of_a_rate_is_that_of_its_duration_turned_over(
    values: list[float], confidence: float
) -> None:
    low, high = rate_interval(values, confidence)
    assert 0 < low <= 1 / np.mean(values) * (1 + 1e-12)
    assert math.isfinite(high)
    assert low * high == pytest.approx(1 / np.mean(values) ** 2)


@pytest.mark.parametrize("processes", [3, 6, 12])
@pytest.mark.parametrize("spread", [0.005, 0.05, 0.2, 0.4])
def test_the_interval_of_a_rate_covers_as_often_as_it_says(processes: int, spread: float) -> None:
    times = (
        np.random.default_rng(processes)
        .lognormal(-(spread**2) / 2, spread, (4000, processes))
        .tolist()
    )
    covered = np.mean(
        [low <= 1 <= high for low, high in map(rate_interval, times)]
    )  # on average a second each
    assert covered == pytest.approx(0.95, abs=0.015)
    if spread > 0.2:  # where the scale matters
        assert covered > np.mean([low <= 1 <= high for low, high in map(student_interval, times)])


@pytest.mark.parametrize(("percentile", "count"), [(90, 29), (95, 59), (99, 299)])
def test_a_percentile_needs_so_many_samples_for_an_upper_bound(
    percentile: float, count: int
) -> None:
    assert samples_for_percentile(percentile) == count
    quantile = percentile / 100
    assert 1 - quantile**count >= 0.95 > 1 - quantile ** (count - 1)


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
def test_a_warm_up_is_over_when_the_median_no_longer_falls(
    medians: list[float], steady: bool
) -> None:
    assert is_steady(medians) is steady


def test_the_signed_rank_interval_by_hand() -> None:
    # Walsh averages of 1, 2, 4, 7, 11, 16: 21 of them, median the 11th. P(T <= 0) = 1/64 < 0.025 <=
    # P(T <= 1) = 2/64: rank 1, so the interval is from the least average to the largest
    centre, low, high = signed_rank([1, 2, 4, 7, 11, 16])
    averages = sorted(
        (a + b) / 2 for i, a in enumerate([1, 2, 4, 7, 11, 16]) for b in [1, 2, 4, 7, 11, 16][i:]
    )
    assert centre == averages[10] == 6.5
    assert (low, high) == (1, 16)


def test_five_values_have_no_95_percent_interval() -> None:
    assert signed_rank([1, 2, 3, 4, 5])[1:] == (-math.inf, math.inf)


@settings(max_examples=30, deadline=None)
@given(st.integers(6, 45), st.integers(0, 10**6))
def test_the_signed_rank_interval_holds_what_scipys_test_does_not_reject(
    count: int, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(0.3, 1, count)
    centre, low, high = signed_rank(values)
    assert low <= centre <= high
    width = high - low
    method = "exact" if count <= 30 else "approx"
    for inside in (low + 1e-6 * width, high - 1e-6 * width):
        assert (
            scipy.stats.wilcoxon(values - inside, method=method).pvalue
            >= 0.05 - (count > 30) * 0.005
        )
    for outside in (low - 1e-6 * width, high + 1e-6 * width):
        assert (
            scipy.stats.wilcoxon(values - outside, method=method).pvalue
            <= 0.05 + (count > 30) * 0.005
        )


def test_the_signed_rank_distribution_is_counted_right_and_meets_the_normal_one() -> None:
    # tables of Wilcoxon's test, two-sided 5 %: T is significant up to 0 of 6, 8 of 10, 52 of 20,
    # 137 of 30
    for count, significant in [(5, -1), (6, 0), (10, 8), (20, 52), (30, 137)]:
        assert _signed_rank_quantile(count, 0.025) == significant + 1
    # 40 values: the table has 264
    assert _signed_rank_quantile(40, 0.025) == pytest.approx(265, abs=1)


def test_pooled_rounds_by_hand() -> None:
    # equal weights 1 / (0.003^2 + 0.004^2) = 40,000; the mean of 0.01 and 0.03 is 0.02; Q = 2 *
    # 40,000 * 1e-4 = 8, whose chance with 1 degree of freedom is 0.0047: the prior is contradicted;
    # plain: deviation 0.01414 / sqrt(2)
    contradicted = pool_rounds([0.01, 0.03], [0.003, 0.003])
    assert contradicted == pytest.approx((0.02, 0.01, 3))
    # 0.014 and 0.026: Q = 2.88, chance 0.09: inflation (8 + 2.88) / 9 = 1.209, error sqrt(1.209 /
    # 80,000)
    pooled = pool_rounds([0.014, 0.026], [0.003, 0.003])
    assert pooled == pytest.approx((0.02, math.sqrt((8 + 2.88) / 9 / 80_000), 9))
    assert pooled is not None
    assert pooled.above(0.05) == pytest.approx(0.02 + scipy.stats.t.ppf(0.95, 9) * pooled.error)
    assert pooled.below(0.05) == pytest.approx(0.02 - scipy.stats.t.ppf(0.95, 9) * pooled.error)


def test_a_round_without_an_interval_says_nothing() -> None:
    assert pool_rounds([0.5, 0.01], [math.inf, 0.003]) == pool_rounds([0.01], [0.003])
    assert pool_rounds([0.5], [math.inf]) is None


@given(st.lists(st.floats(-0.1, 0.1), min_size=1, max_size=6))
def test_the_scatter_of_rounds_never_narrows_the_interval(values: list[float]) -> None:
    pooled = pool_rounds(values, [0.002] * len(values))
    alike = pool_rounds([0.0] * len(values), [0.002] * len(values))
    assert pooled is not None
    assert alike is not None
    assert pooled.below(0.01) - pooled.mean <= alike.below(0.01) - alike.mean + 1e-12


def test_persistence_is_one_without_it_and_grows_as_neighbours_are_alike() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=500)
    assert persistence(noise) == 1
    walk = [0.0]
    for step in noise:
        walk.append(0.8 * walk[-1] + step)
    assert persistence(np.array(walk)) == pytest.approx(3, rel=0.25)  # sqrt(1.8 / 0.2)
    assert persistence(np.ones(9)) == persistence(np.array([1.0, 2.0])) == 1


def test_the_ratio_of_means_by_hand_and_by_simulation() -> None:
    # means 2 and 1; a/2 - b = (0, 0, 0): no error at all
    assert ratio_of_means(np.array([1.0, 2, 3]), np.array([0.5, 1, 1.5])) == pytest.approx(
        (math.log(2), 0)
    )
    rng = np.random.default_rng(1)
    found = [ratio_of_means(rng.normal(2, 0.2, 50), rng.normal(1, 0.05, 50)) for _ in range(500)]
    assert np.std([value for value, _ in found]) == pytest.approx(
        np.mean([error for _, error in found]), rel=0.1
    )


def test_the_ratio_of_percentiles_and_its_error_by_simulation() -> None:
    rng = np.random.default_rng(2)
    found = [
        quantile_ratio(rng.gamma(4, 1, (80, 2)), rng.gamma(4, 2, (80, 2)), 90) for _ in range(60)
    ]
    assert np.mean([value for value, _ in found]) == pytest.approx(-math.log(2), abs=0.03)
    assert np.std([value for value, _ in found]) == pytest.approx(
        np.mean([error for _, error in found]), rel=0.35
    )


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_is_scipys_binomial_test(lost: int, won: int) -> None:
    wanted = scipy.stats.binomtest(lost, lost + won, 0.5, "greater").pvalue if lost + won else 1.0
    assert mcnemar(lost, won) == pytest.approx(wanted)


def test_the_matched_difference_by_hand() -> None:
    # 7 lost, 1 won of 98: N = 100, difference -0.06, variance term 7 + 1 + 1 - 36 / 100 = 8.64;
    # half = 1.96 * 0.029394
    assert matched_difference(7, 1, 98) == pytest.approx(
        (-0.06 - 0.057611, -0.06 + 0.057611), abs=1e-5
    )


def test_the_matched_difference_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(2000):
        lost, won, _ = rng.multinomial(300, [0.03, 0.01, 0.96])
        low, high = matched_difference(int(lost), int(won), 300)
        covered += low <= -0.02 <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.025)


def test_students_quantile_is_scipys() -> None:
    assert student_quantile(9, 0.998) == pytest.approx(scipy.stats.t.ppf(0.998, 9))
