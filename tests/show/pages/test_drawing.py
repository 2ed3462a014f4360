"""Elements of SVG."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_mlms.show.pages.drawing import (
    Scale,
    element,
    linear_scale,
    linear_ticks,
    log_scale,
    log_ticks,
    number,
    path_of,
)


@given(st.text(), st.text(), st.text())
def test_any_text_stays_text(child: str, title: str, value: str) -> None:
    made = element("g", child, title=title, aria_label=value)
    parsed = ET.fromstring(made)
    assert {node.tag for node in parsed.iter()} <= {"g", "title"}
    assert set(parsed.attrib) == {"aria-label"}


def test_markup_is_not_escaped_again() -> None:
    inner = element("text", "a < b")
    assert element("g", inner) == "<g><text>a &lt; b</text></g>"


def test_an_attribute_that_is_none_is_left_out() -> None:
    assert (
        element("path", d="M0 0", stroke_dasharray=None, class_="x") == '<path d="M0 0" class="x"/>'
    )


def test_coordinates_are_short() -> None:
    assert [number(value) for value in (1.0, -0.04, 2.25, 10.06)] == ["1", "0", "2.2", "10.1"]
    assert path_of([(0, 0), (1.5, 2)]) == "M0 0l1.5 2"
    assert path_of([]) == ""


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
