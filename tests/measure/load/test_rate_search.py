"""The search of the rate at which a percentile reaches its limit."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.measure.load.rate_search import RateSearch
from tests.support.queues import Queue


def searched(ratio: Callable[[float], float], search: RateSearch) -> RateSearch:
    """Run a search on a machine whose percentile over the limit is a function of the rate."""
    rate = search.next_rate()
    while rate is not None:
        search.add(rate, ratio(rate))
        rate = search.next_rate()
    return search


@given(st.floats(0.1, 1e5), st.floats(0.1, 10), st.floats(0.5, 40))
@settings(max_examples=60, deadline=None)
def test_the_crossing_of_a_power_is_found(peak: float, start_share: float, power: float) -> None:
    search = RateSearch(start_share * peak, steepness=power)
    found = searched(lambda rate: (rate / peak) ** power, search).crossing()
    assert found.rate == pytest.approx(peak, rel=1e-3)
    assert found.good <= peak * (1 + 1e-5)
    assert found.bad >= peak * (1 - 1e-5)
    assert found.bad / found.good < 1.11
    assert found.steepness == pytest.approx(power, rel=0.01)
    assert not found.exceptions


def test_an_earlier_crossing_nearby_takes_few_runs() -> None:
    rng = np.random.default_rng(4)
    unit = np.cumsum(rng.exponential(1, 662))
    queue = Queue(0.005)

    def ratio(rate: float) -> float:
        return float(np.sort(queue.latencies(unit / rate, rng))[655]) / 0.05

    first = searched(ratio, RateSearch(queue.capacity)).crossing()
    for factor in (0.9, 1.0, 1.1):
        again = searched(ratio, RateSearch(factor * first.rate, steepness=first.steepness))
        assert len(again.points) <= 4
        assert again.crossing().rate == pytest.approx(first.rate, rel=0.02)


def test_a_side_that_is_never_good_has_the_lowest_rate_as_a_bound() -> None:
    search = searched(lambda rate: 3.0, RateSearch(100, lowest=20))
    assert min(point.rate for point in search.points) == 20
    found = search.crossing()
    assert (found.rate, found.good, found.bad) == (20, 0, 20)


def test_a_side_that_is_always_good_has_the_highest_rate_that_was_tried() -> None:
    search = searched(lambda rate: 0.01, RateSearch(300_000))
    assert search.points[-1].rate == 1_000_000
    found = search.crossing()
    assert (found.rate, found.good) == (1_000_000, 1_000_000)
    assert math.isinf(found.bad)


def test_a_search_has_an_end() -> None:
    search = searched(lambda rate: 3.0, RateSearch(1e6, runs=5))
    assert len(search.points) == 5


def test_a_batcher_may_be_good_above_a_bad_rate() -> None:
    """Its batches fill late at a low rate: good from 150 to 400 /s only."""

    def ratio(rate: float) -> float:
        return 0.9 if 150 <= rate <= 400 else 1.5

    found = searched(ratio, RateSearch(100, upwards=True)).crossing()
    assert found.good <= 400 <= found.bad
    assert found.exceptions == (100,)
    downwards = searched(ratio, RateSearch(100)).crossing()
    assert downwards.good == 0
