"""Tests of the parsing and formatting of quantities with units."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.units import UNITS, format_quantity, parse_quantity, parse_share


@pytest.mark.parametrize(
    ("text", "base", "value"),
    [
        ("5 ms", "s", 0.005),
        ("1.5us", "s", 1.5e-6),
        ("2 \u00b5s", "s", 2e-6),
        ("2 \u03bcs", "s", 2e-6),
        ("1e-3 s", "s", 1e-3),
        ("64 MiB", "B", 64 * 2**20),
        ("1 GB", "B", 1e9),
        ("200 /s", "/s", 200),
        ("30 /min", "/s", 0.5),
        ("3 mJ", "J", 0.003),
        ("97 %", "fraction", 0.97),
        (0.97, "fraction", 0.97),
        (1, "fraction", 1),
    ],
)
def test_a_quantity_is_read_in_its_base_unit(text: str | float, base: str, value: float) -> None:
    assert parse_quantity(text, base) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "base", "says"),
    [
        ("5", "s", "has no unit; write one of ns, us"),
        (5, "s", "has no unit"),
        ("5 parsecs", "s", "has the unit 'parsecs'"),
        ("ms", "s", "is not a quantity; write a number and a unit"),
        ("-1 ms", "s", "is out of range"),
        ("1e999 s", "s", "is out of range"),
        ("1e99999999999999999999 s", "s", "is out of range"),
        ("5e999999999 ms", "s", "is out of range"),
        ("5e-999999999 s", "B", "has the unit 's'"),
        ("9" * 100_000, "s", "is not a quantity"),
        ("9" * 99 + "!", "s", "has the unit '!'"),
        ("5" + " " * 100_000 + "m s", "s", "is not a quantity"),
        (97, "fraction", "out of range; write 0 to 1, or 0 % to 100 %"),
        ("101 %", "fraction", "out of range"),
        (None, "s", "is not a quantity"),
        (True, "fraction", "is not a quantity"),
        (math.nan, "fraction", "is out of range"),
    ],
)
def test_text_that_is_no_quantity_is_an_error_that_says_what_to_write(
    text: object, base: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        parse_quantity(text, base)  # type: ignore[arg-type]


@given(st.sampled_from(sorted(UNITS)), st.floats(0, 1e12), st.data())
def test_a_number_in_any_unit_is_multiplied_by_its_factor(
    base: str, number: float, data: st.DataObject
) -> None:
    unit = data.draw(st.sampled_from(sorted(UNITS[base])))
    if base == "fraction":
        number = number % 100
    expected = number * UNITS[base][unit]
    assert parse_quantity(f"{number!r} {unit}", base) == pytest.approx(expected)


@given(st.text(max_size=12), st.sampled_from(sorted(UNITS)))
def test_any_text_is_a_quantity_or_a_clean_error(text: str, base: str) -> None:
    try:
        assert parse_quantity(text, base) >= 0
    except ValueError as error:
        assert "; write" in str(error)


@pytest.mark.parametrize(
    ("value", "base", "text"),
    [
        (0.0000209, "s", "20.9 µs"),
        (0.005, "s", "5.00 ms"),
        (1.25, "s", "1.25 s"),
        (3e-10, "s", "0.300 ns"),
        (0, "s", "0 s"),
        (0, "B", "0 B"),
        (10 * 2**20, "B", "10.0 MiB"),
        (48123.4, "/s", "48,123 /s"),
        (0.99, "fraction", "99.00 %"),
        (math.inf, "s", "unbounded"),
        (math.nan, "s", "-"),
    ],
)
def test_a_quantity_is_shown_with_three_digits(value: float, base: str, text: str) -> None:
    assert format_quantity(value, base) == text


@given(st.floats(1e-9, 1e6))
def test_a_formatted_quantity_is_read_back_within_its_digits(value: float) -> None:
    shown = format_quantity(value, "s").replace(",", "")
    assert parse_quantity(shown, "s") == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize(("text", "share"), [("250 %", 2.5), ("0 %", 0), (0.03, 0.03), (0, 0)])
def test_a_share_may_be_more_than_all(text: str | float, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", [1, 1.0, "1", 3, "-1 %", math.nan, "1e999 %"])
def test_a_share_that_may_be_meant_as_another_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="; write "):
        parse_share(text)
