"""Tests of files of JSON lines."""

from __future__ import annotations

import io

import pytest

from pytest_mlms.core.json_lines import lines_from, read_line


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
