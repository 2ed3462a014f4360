"""Edits of YAML text at the place of a key."""

from __future__ import annotations

import pytest

from pytest_mlms.manifest.digests import CannotEdit, add_key, replace_value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:\n  b: 1\n", "a:\n  b: 1\n  c: 2\n"),
        ("a:\n  b: 1", "a:\n  b: 1\n  c: 2\n"),
        ("a:\n  b: 1  # why\n\nd: 3\n", "a:\n  b: 1  # why\n  c: 2\n\nd: 3\n"),
        ("a:\r\n  b: 1\r\nd: 3\r\n", "a:\r\n  b: 1\r\n  c: 2\r\nd: 3\r\n"),
        ("a: {b: 1, d: 3} # why\n", "a: {b: 1, c: 2, d: 3} # why\n"),
        ('a: {\n  b: "1"\n}\n', 'a: {\n  b: "1", c: 2\n}\n'),
        ("a:\n  b: |\n    one\n  d: 3\n", "a:\n  b: |\n    one\n  c: 2\nd".replace("\nd", "\n  d: 3\n")),
        ("a:\n  b: >-\n    one\n    two\nd: 3\n", "a:\n  b: >-\n    one\n    two\n  c: 2\nd: 3\n"),
        ("# Größe 🙂\na:\n  b: 'ä'\n", "# Größe 🙂\na:\n  b: 'ä'\n  c: 2\n"),
        ("---\na:\n  b: 1\n...\n", "---\na:\n  b: 1\n  c: 2\n...\n"),
    ],
)  # fmt: skip
def test_a_key_is_added_behind_another_one(text: str, expected: str) -> None:
    assert add_key(text, ("a",), "c", "2", after="b") == expected


def test_a_key_is_added_to_an_item_of_a_list() -> None:
    text = "a:\n  - b: 1\n    d: 3\n  - b: 2\n"
    assert add_key(text, ("a", 0), "c", "2", after="b") == (
        "a:\n  - b: 1\n    c: 2\n    d: 3\n  - b: 2\n"
    )
    assert add_key(text, ("a", 1), "c", "2", after="b").endswith("  - b: 2\n    c: 2\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:\n  b: TODO # later\n", "a:\n  b: 2 # later\n"),
        ("a:\n  b:\n  d: 3\n", "a:\n  b: 2\n  d: 3\n"),
        ("a: {b: '', d: 3}\n", "a: {b: 2, d: 3}\n"),
        ("a: {b: {x: 1}, d: 3}\n", "a: {b: 2, d: 3}\n"),
    ],
)
def test_a_value_is_replaced(text: str, expected: str) -> None:
    assert replace_value(text, ("a", "b"), "2") == expected


@pytest.mark.parametrize("text", ["x: &x {b: 1}\na: *x\n", "a: {d: 1}\n", "a: 1\n"])
def test_what_is_not_written_there_is_not_edited(text: str) -> None:
    with pytest.raises(CannotEdit):
        add_key(text, ("a",), "c", "2", after="b")


def test_what_aliases_repeat_is_edited_once() -> None:
    edited = add_key("a: &x\n  b: 1\nd: *x\n", ("a",), "c", "2", after="b")
    assert edited == "a: &x\n  b: 1\n  c: 2\nd: *x\n"
