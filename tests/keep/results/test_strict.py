"""Models of strict readers, made of the records of a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from pytest_mlms.core.serialization import OrDefault, from_plain
from pytest_mlms.keep.results.strict import Bounds, Count, StrictReader, Taken, Text


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    name: str = "none"
    size: float = 0.0


@dataclass(frozen=True)
class Whole:
    count: Count
    color: Color = Color.RED
    part: Part = field(default_factory=Part)
    parts: tuple[Part, ...] = ()
    by_name: Mapping[str, Part] = field(default_factory=dict)
    word: Annotated[str, Bounds(max_length=3)] = ""
    other: int = 0
    facts: Annotated[Mapping[str, str] | None, OrDefault(None)] = None


TAKEN = {
    Whole: Taken("count", "part parts", "color by_name word"),
    Part: Taken(optional="name", nullable="size"),
}
MODEL = StrictReader(TAKEN, "allow").model(Whole)


def test_lines_become_plain_values_with_the_defaults_of_their_records() -> None:
    found = MODEL.model_validate({"count": 1, "parts": [{"name": "a"}], "other": "x"}).model_dump()
    assert found == {
        "count": 1,
        "part": {"name": "none", "size": None},
        "parts": [{"name": "a", "size": None}],
        "color": None,
        "by_name": None,
        "word": None,
        "other": "x",
    }


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"count": None},
        {"count": "1"},
        {"count": -1},
        {"count": 1, "part": None},
        {"count": 1, "parts": [{"name": None}]},
        {"count": 1, "by_name": {"a": {"name": 1}}},
        {"count": 1, "parts": [{"name": "a", "size": float("inf")}]},
        {"count": 1, "color": "blue"},
        {"count": 1, "word": "long"},
    ],
)
def test_what_is_missing_of_another_type_or_out_of_bounds_is_refused(line: Any) -> None:
    with pytest.raises(ValidationError):
        MODEL.model_validate(line)


def test_pages_read_the_same_record_without_bounds() -> None:
    found = from_plain(Whole, {"count": "-1", "word": "long", "facts": 5})
    assert found == Whole(-1, word="long")


@dataclass(frozen=True)
class Indexed:
    text: Text
    count: Count


def test_only_readers_that_index_texts_bound_their_lengths() -> None:
    line = {"text": "x" * 4001, "count": 1}
    taken: Mapping[type, Taken] = {Indexed: Taken("text count")}
    assert StrictReader(taken, "allow").model(Indexed).model_validate(line)
    for wrong in (line, {"text": "x", "count": -1}):
        with pytest.raises(ValidationError):
            StrictReader(taken, "allow", indexes=True).model(Indexed).model_validate(wrong)
