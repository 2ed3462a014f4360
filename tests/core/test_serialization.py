"""Records to plain JSON values, and back."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.serialization import (
    NullAs,
    OrDefault,
    from_plain,
    lines_from,
    omitted_if_default,
    plain_as_list,
    plain_as_whole,
    read_line,
    to_plain,
)


class Colour(str, Enum):
    RED = "red"


class Point(NamedTuple):
    x: float
    y: float = 0.0


@dataclass(frozen=True)
class Drawing:
    path: Path
    colour: Colour
    points: tuple[Point, ...]
    sizes: Mapping[str, int]
    reason: str = omitted_if_default("")


@plain_as_list
class Interval(NamedTuple):
    low: Annotated[float, NullAs(-math.inf)]
    high: Annotated[float, NullAs(math.inf)]


DRAWING = Drawing(Path("a/b"), Colour.RED, (Point(1.5), Point(2.5, 3.5)), {"all": 2})


def test_a_record_becomes_an_object_with_a_key_for_each_field() -> None:
    assert to_plain(DRAWING) == {
        "path": "a/b",
        "colour": "red",
        "points": [{"x": 1.5, "y": 0.0}, {"x": 2.5, "y": 3.5}],
        "sizes": {"all": 2},
    }


def test_a_field_that_is_omitted_by_default_is_there_once_it_is_set() -> None:
    made = Drawing(Path("a"), Colour.RED, (), {}, reason="no ink")
    assert to_plain(made)["reason"] == "no ink"


@plain_as_whole
@dataclass(frozen=True)
class Shown:
    drawings: tuple[Drawing, ...]
    note: Annotated[str, OrDefault("")] = ""


def test_nothing_is_omitted_of_a_record_that_is_shown_as_a_whole() -> None:
    (drawing,) = to_plain(Shown((DRAWING,)))["drawings"]
    assert drawing["reason"] == ""


def test_a_value_of_another_type_may_be_read_as_the_default() -> None:
    assert from_plain(Shown, {"drawings": [], "note": 5}) == Shown(())
    assert from_plain(Shown, {"drawings": [], "note": "a"}).note == "a"


def test_what_json_cannot_say_of_a_number_is_null() -> None:
    assert to_plain([math.nan, math.inf, -math.inf, 1.5]) == [None, None, None, 1.5]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.5, np.inf]), [1.5, None]),
    ],
)
def test_numbers_and_arrays_of_numpy_become_those_of_python(value: Any, plain: Any) -> None:
    made = to_plain({"value": value})["value"]
    assert made == plain
    assert type(made) is type(plain)


def test_a_set_becomes_a_sorted_list() -> None:
    assert to_plain({"b", "a"}) == ["a", "b"]


def test_a_value_without_a_form_in_json_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="object has no form in JSON"):
        to_plain({"a": object()})


@pytest.mark.parametrize(
    ("interval", "plain"),
    [(Interval(1.0, math.inf), [1.0, None]), (Interval(-math.inf, 2.0), [None, 2.0])],
)
def test_an_infinity_comes_back_from_null_as_its_field_declares(
    interval: Interval, plain: list[float | None]
) -> None:
    assert to_plain(interval) == plain
    assert from_plain(Interval, plain) == interval


@given(st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.just(0.5))))
def test_a_record_comes_back_from_json_as_it_was(points: list[tuple[float, float]]) -> None:
    made = Drawing(Path("p"), Colour.RED, tuple(Point(*point) for point in points), {"n": 1})
    assert from_plain(Drawing, json.loads(json.dumps(to_plain(made)))) == made


@pytest.mark.parametrize(
    "value", [1 << 1025, b"x", 1j, np.longdouble(1), np.complex64(1), object(), {1: object()}]
)
def test_a_value_that_json_can_not_have_is_an_error(value: object) -> None:
    with pytest.raises((TypeError, ValueError), match="has no form in JSON"):
        to_plain(value)


NUMBERS = st.integers(-(1 << 1024) + 1, (1 << 1024) - 1) | st.floats() | st.floats().map(np.float64)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text()


@given(st.recursive(LEAVES, lambda values: st.lists(values) | st.dictionaries(st.text(), values)))
def test_a_plain_value_can_always_be_written(value: Any) -> None:
    text = json.dumps(to_plain(value), allow_nan=False)
    json.dumps(json.loads(text), allow_nan=False).encode()


@pytest.mark.parametrize(
    "line", [r'{"host": "\ud800"}', b'{"host": "\xed\xa0\x80"}', "[" * 100_000, '{"host": "x']
)
def test_a_line_that_no_page_or_database_could_have_is_none(line: str | bytes) -> None:
    assert read_line(line) is None


def test_integers_that_no_float_can_stand_for_are_none_of_a_line() -> None:
    assert read_line('{"seed": 1' + "0" * 308 + "}") == {"seed": 10**308}
    assert read_line('{"seed": 1' + "0" * 309 + "}") is None
    assert read_line('{"name": "1' + "0" * 309 + '"}') == {"name": str(10**309)}


def test_pairs_of_surrogates_are_characters() -> None:
    assert read_line(r'{"host": "\ud83d\ude00"}') == {"host": "\U0001f600"}


@pytest.mark.parametrize("length", range(18, 26))
def test_a_line_that_is_too_long_hides_no_other(length: int) -> None:
    long = b'{"a": "%s"}\n' % (b"x" * (length - 10))
    file = io.BytesIO(long + b'{"b": 1}\n')
    first, second = lines_from(file, longest=20)
    assert (first.length, first.is_too_long) == (length, length > 20)
    assert second.content == {"b": 1}


def test_a_line_that_is_too_long_does_not_count_while_it_is_written() -> None:
    assert list(lines_from(io.BytesIO(b'{"a": "' + b"x" * 50), longest=20)) == []
