"""Timings as text, and what is noise between two of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.keep.lockfile.timing import is_noise, is_sharper, parse_timing, timings_of

OLD = "100 ms (90.0 ms to 110 ms)"


def timings(unit: str, value: float, low: float, high: float) -> dict[str, str]:
    names = {"s": "latency_p50", "/s": "throughput", "B": "peak_memory"}
    estimate = {"value": value, "low": low, "high": high, "unit": unit}
    return dict(timings_of({names[unit]: estimate}))


@given(st.sampled_from(["s", "/s", "B"]), st.floats(1e-6, 1e12))
def test_a_timing_is_read_with_three_digits(unit: str, value: float) -> None:
    (text,) = timings(unit, value, value / 2, value * 2).values()
    read = parse_timing(text)
    assert read.value == pytest.approx(value, rel=6e-3, abs=6e-10 if unit == "s" else 6e-3)
    assert read.low <= read.value <= read.high


def test_estimates_without_an_interval_are_left_out() -> None:
    assert timings("s", 1.0, 0.0, float("inf")) == {}
    assert dict(timings_of({"latency_p50": {"value": None, "low": None, "high": None}})) == {}
    assert dict(timings_of({"load_time": {"value": 1, "low": 1, "high": 1}})) == {}


@pytest.mark.parametrize("text", ["", "5 ms", "5 ms (4 ms)", "5 ms (4 s to 5 /s)", "a (b to c)"])
def test_a_text_of_another_form_is_no_timing(text: str) -> None:
    with pytest.raises(ValueError, match="is no timing; write one as in"):
        parse_timing(text)


@pytest.mark.parametrize(
    ("new", "tolerance", "expected"),
    [
        ("105 ms (100 ms to 112 ms)", 0.03, True),
        ("120 ms (113 ms to 125 ms)", 0.03, True),
        ("120 ms (114 ms to 125 ms)", 0.03, False),
        ("120 ms (114 ms to 125 ms)", 0.1, True),
        ("80.0 ms (75.0 ms to 87.0 ms)", 0.03, False),
        ("80.0 ms (75.0 ms to 88.0 ms)", 0.03, True),
    ],
)
def test_intervals_that_meet_within_the_tolerance_are_noise(
    new: str, tolerance: float, expected: bool
) -> None:
    assert is_noise(OLD, new, tolerance) == expected


def test_an_interval_of_less_than_half_the_width_is_sharper() -> None:
    assert is_sharper(OLD, "100 ms (98.0 ms to 102 ms)")
    assert not is_sharper(OLD, "100 ms (94.0 ms to 106 ms)")
