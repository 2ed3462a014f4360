"""Scales of quantities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.keep.history.scales import scale_of


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
