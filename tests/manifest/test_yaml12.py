"""Tests of the reader of YAML 1.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.manifest.yaml12 import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-7", -7),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("! 1", "1"),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    document = parse(f"key: {text}")
    assert document.errors == []
    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


def test_every_key_and_item_has_its_line() -> None:
    document = parse("a: 1\nb:\n  - c: 2\n    d: 3\n  - 4\n")
    assert document.line(("b", 0, "d")) == 4
    assert document.line(("b", 1)) == 5
    assert document.line(("b", 0, "missing", "deeper")) == 3


def test_both_of_two_equal_keys_are_named() -> None:
    assert parse("a: 1\nb: 2\na: 3\n").errors == [
        (3, "has the key 'a' again, first on line 1; keep one")
    ]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: [1\nb", 3, "is not YAML"),
        ("a: *nothing", 1, "which no &nothing before it defines"),
        ("a: &a [*a]", 1, "has the alias"),
        ("a: !!python/object/apply:os.system [x]", 1, "has the tag"),
        ("a: 1\n---\na: 2", 2, "second document"),
        ("? [1]\n: 2", 1, "has a key that is not a word"),
        ("a: " + "[" * 100_000, 1, "nested deeper"),
        ("a: " + "{b: " * 50 + "1" + "}" * 50, 1, "nested deeper"),
        ("\x00", 1, "is not YAML"),
        ("a: .inf", 1, "has the number .inf, which is not finite or has more than 64 bits; write"),
        ("a: .nan", 1, "has the number .nan"),
        ("a: 1e999", 1, "has the number 1e999"),
        ("a: 18446744073709551616", 1, "more than 64 bits"),
        ("a: 0x" + "f" * 6000, 1, "more than 64 bits"),
        ("a: " + "9" * 6000, 1, "has the number 9999999999999999999999999 … 999999999999, which"),
        ("a: 1" + "0" * 6000 + ".5", 1, "more than 64 bits"),
        ('a: "\\e[2J"', 1, r"has the control character '\x1b' in a text; remove it"),
        ('"\\x9b2J": 1', 1, r"has the control character '\x9b'"),
        ('a: "\\ud800"', 1, "invalid Unicode character"),
    ],
)
def test_a_document_that_is_not_plain_has_an_error_with_its_line(
    text: str, line: int, says: str
) -> None:
    document = parse(text)
    assert document.value is None
    found_line, found_text = document.errors[-1]
    assert found_line == line
    assert says in found_text


def test_an_alias_repeats_a_value() -> None:
    assert parse("a: &x [1, 2]\nb: *x").value == {"a": [1, 2], "b": [1, 2]}


def test_aliases_of_aliases_can_not_exhaust_memory() -> None:
    lines = ["a: &a [1,1,1,1,1,1,1,1,1,1]"]
    for old, new in zip("abcdef", "bcdefg", strict=True):
        aliases = ",".join([f"*{old}"] * 10)
        lines.append(f"{new}: &{new} [{aliases}]")
    ((_, text),) = parse("\n".join(lines)).errors
    assert "more than 100,000 values" in text


@given(st.text(max_size=200))
def test_no_text_raises(text: str) -> None:
    document = parse(text)
    if any("is not YAML" in error for _, error in document.errors):
        assert document.value is None
