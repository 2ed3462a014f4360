"""Timings as text and what is noise between two of them, and keys of stacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.keep.lockfile.lock import (
    LockedStack,
    NamedSoftware,
    is_noise,
    is_sharper,
    keys_of,
    parse_timing,
    stack_name,
    timings_of,
)

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


FIRST, SECOND, THIRD = (
    LockedStack(python="3.11.7", packages=(f"a=={version}",)) for version in "123"
)


def keys(softwares: list[LockedStack], old: dict[str, LockedStack]) -> list[str]:
    named = [NamedSoftware("here", software) for software in softwares]
    found = keys_of(named, old)
    return [found[entry] for entry in named]


def test_one_software_has_the_name_of_its_stack() -> None:
    assert keys([SECOND], {}) == ["here"]
    assert keys([SECOND], {"here": FIRST}) == ["here"]


def test_several_softwares_have_numbers_in_an_order_that_no_run_changes() -> None:
    assert keys([SECOND, FIRST], {}) == keys([SECOND, FIRST, FIRST], {})[:2] == ["here (2)", "here"]


def test_known_softwares_keep_their_numbers_and_new_ones_follow() -> None:
    old = {"here": THIRD, "here (2)": SECOND}
    assert keys([FIRST, SECOND, THIRD], old) == ["here (3)", "here (2)", "here"]
    assert keys([FIRST, SECOND], old) == ["here (2)", "here"]


def test_names_do_not_share_numbers() -> None:
    named = [NamedSoftware("here", FIRST), NamedSoftware("there", SECOND)]
    assert sorted(keys_of(named, {}).values()) == ["here", "there"]


def test_the_name_is_the_key_without_its_number() -> None:
    assert stack_name("here (2)") == stack_name("here") == "here"
