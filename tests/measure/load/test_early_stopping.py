"""Tests of LoadGen's early stopping against scipy's binomial distribution."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.measure.load.early_stopping import (
    estimate,
    fails,
    least_within,
    most_over,
    queries_needed,
)

SHARES = st.sampled_from([0.5, 0.9, 0.95, 0.97, 0.99, 0.999])


@given(st.integers(0, 500), SHARES)
def test_the_queries_within_a_limit_are_the_least_that_show_it(over: int, share: float) -> None:
    within = least_within(over, share)
    assert scipy.stats.binom.cdf(over, within + over, 1 - share) < 0.01
    if within > 1:
        assert scipy.stats.binom.cdf(over, within - 1 + over, 1 - share) >= 0.01


@pytest.mark.parametrize(
    ("share", "least"), [(0.5, 11), (0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6636)]
)
def test_a_percentile_needs_as_many_queries_as_loadgen_says(share: float, least: int) -> None:
    assert queries_needed(share) == least
    ordered = np.arange(least)
    assert estimate(ordered, share) == least - 1
    assert estimate(ordered[1:], share) is None


@given(st.integers(0, 20_000), SHARES)
def test_the_queries_that_may_be_over_are_the_most(queries: int, share: float) -> None:
    over = most_over(queries, share)
    assert over == -1 or least_within(over, share) + over <= queries
    assert least_within(over + 1, share) + over + 1 > queries


@given(st.integers(1, 20_000), st.data(), SHARES)
def test_a_run_fails_where_so_many_over_the_limit_are_rare(
    queries: int, data: st.DataObject, share: float
) -> None:
    over = data.draw(st.integers(0, min(queries, 50)))
    probability = scipy.stats.binom.sf(over - 1, queries, 1 - share)
    if abs(probability - 0.01) > 1e-9:
        assert fails(queries, over, share) == (probability < 0.01)
