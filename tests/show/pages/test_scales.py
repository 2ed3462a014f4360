"""Scales of axes, and their ticks."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_mlms.show.pages.scales import Scale, linear_scale, linear_ticks, log_scale, log_ticks

ANY = st.lists(st.floats(allow_nan=True), max_size=5)
SIZES = st.floats(1e-12, 1e12)


@given(ANY, st.floats(allow_nan=False), st.booleans())
def test_every_value_is_within_a_linear_axis(values: list[float], value: float, zero: bool) -> None:
    assume(all(abs(each) < 1e150 for each in values if math.isfinite(each)))
    assert 0 <= linear_scale(values, zero).share(value) <= 1


@given(ANY, st.floats(allow_nan=False))
def test_every_value_is_within_a_logarithmic_axis(values: list[float], value: float) -> None:
    assert 0 <= log_scale(values).share(value) <= 1


@given(SIZES, st.floats(1.001, 1e6), st.integers(2, 9))
def test_there_are_some_ticks_but_not_many(low: float, ratio: float, count: int) -> None:
    ticks = linear_ticks(low, low * ratio, count)
    assert 1 <= len(ticks) <= count + 1
    logarithmic = Scale(low, low * ratio, log=True).ticks(count)
    assert 1 <= len(logarithmic) <= count + 1


def test_linear_ticks_are_round() -> None:
    assert linear_ticks(0, 1, 5) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert linear_ticks(0.97, 1.13, 4) == pytest.approx([1.0, 1.05, 1.1])


def test_logarithmic_ticks_are_denser_where_there_is_room() -> None:
    assert log_ticks(0.9, 120, 3) == pytest.approx([1, 10, 100])
    assert log_ticks(0.9, 12, 6) == pytest.approx([1, 2, 5, 10])


def test_an_axis_that_starts_at_zero_has_no_room_below() -> None:
    assert linear_scale([1, 2], zero=True).low == 0
    assert linear_scale([5.0]).share(5.0) == pytest.approx(0.5)
