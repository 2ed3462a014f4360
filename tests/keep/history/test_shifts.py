"""Scales of quantities, on which shifts are found."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.keep.history.shifts import scale_of


@pytest.mark.parametrize("name", QUANTITIES)
def test_every_quantity_has_a_scale_for_zero_and_back(name: str) -> None:
    scale = scale_of(name, QUANTITIES[name].unit)
    values = np.array([0.0, 0.5, 1.0])
    levels = scale.of(values)
    assert np.isfinite(levels).all()
    assert [scale.value(level) for level in levels] == pytest.approx(values, abs=1e-9)


def test_times_are_compared_by_ratios_and_shares_by_differences() -> None:
    assert scale_of("latency_p50", "s").sensitivity.min_magnitude == pytest.approx(math.log(1.03))
    assert not scale_of("latency_p50", "s").is_share
    assert scale_of("top1", "fraction").sensitivity.min_magnitude == 0.01
    assert scale_of("top1", "fraction").is_share


def test_the_tolerance_of_the_gate_holds_where_it_is_larger() -> None:
    assert scale_of("throughput", "/s").sensitivity.min_magnitude == pytest.approx(math.log(1.05))
    assert scale_of("latency_p99", "s").sensitivity.min_magnitude == pytest.approx(math.log(1.15))
    assert scale_of("latency_mean", "s").sensitivity.min_magnitude == 0.02


def test_computed_quantities_are_exact_and_timed_ones_are_not() -> None:
    assert scale_of("deviation", "").sensitivity.exact
    assert scale_of("top1", "fraction").sensitivity.exact
    assert not scale_of("peak_memory", "B").sensitivity.exact


def test_short_loads_do_not_matter() -> None:
    scale = scale_of("load_time", "s")
    first, second = scale.of(np.array([0.001, 0.002]))
    assert second - first < 0.02


def test_a_users_quantity_has_the_scale_of_its_unit() -> None:
    assert scale_of("share_of_mine", "fraction").is_share
    assert not scale_of("time_of_mine", "s").is_share


def test_a_ratio_from_zero_is_finite() -> None:
    scale = scale_of("deviation", "")
    before, after = scale.of(np.array([0.0, 1.5]))
    assert 1e6 < scale.ratio(before, after) < math.inf
    assert scale.ratio(after, after) == 1


@given(st.lists(st.floats(-1e12, 1e12).filter(lambda value: not 0 < abs(value) < 1e-6), min_size=2))
def test_values_of_a_users_quantity_keep_their_order_and_come_back_whatever_their_sign(
    values: list[float],
) -> None:
    scale = scale_of("score_of_mine", "")
    levels = scale.of(np.array(values))
    assert (np.argsort(values, kind="stable") == np.argsort(levels, kind="stable")).all()
    assert [scale.value(level) for level in levels] == pytest.approx(values, rel=1e-5)


@pytest.mark.parametrize(("before", "after", "ratio"), [(100, 103, 1.03), (-100, -103, 1.03)])
def test_a_negative_value_changes_by_its_share_as_a_positive_one(
    before: float, after: float, ratio: float
) -> None:
    """All negative ones had the level of 0, so that none of them ever changed."""
    scale = scale_of("score_of_mine", "")
    old, new = scale.of(np.array([before, after], float)).tolist()
    assert abs(new - old) == pytest.approx(math.log(1.03))
    assert scale.ratio(old, new) == pytest.approx(ratio)
    low, high = scale.ratios(old, new - 0.01, new + 0.01)
    assert low < ratio < high


def test_an_end_beyond_zero_is_none_of_the_other_sign() -> None:
    scale = scale_of("score_of_mine", "")
    old, new = scale.of(np.array([0.1, 0.2])).tolist()
    low, high = scale.ratios(old, new - 60, new + 0.01)
    assert low < 1e-9
    assert high == pytest.approx(2, rel=0.02)
