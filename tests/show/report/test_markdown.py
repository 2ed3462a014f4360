"""Tests of the Markdown that reports are made of."""

from __future__ import annotations

import re

import pytest

from pytest_mlms.show.report.markdown import code, code_block, folded, table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a b", "`a b`"),
        ("two\nlines\tand  blanks", "`two lines and blanks`"),
        ("a`b", "``a`b``"),
        ("`a``b`", "``` `a``b` ```"),
        ("\x1b[31m", "`\\x1b[31m`"),
        ("<script>@joe #1", "`<script>@joe #1`"),
    ],
)
def test_foreign_text_stands_in_a_code_span_that_it_cannot_end(text: str, shown: str) -> None:
    assert code(text) == shown


def test_a_long_text_is_shortened_to_a_line_of_a_table() -> None:
    assert len(code("x" * 5000)) < 400


def test_a_block_has_a_longer_fence_than_its_text() -> None:
    assert code_block(["a", "```sh", "b\x00"], "sh") == "````sh\na\n```sh\nb\\x00\n````\n"


def test_cells_keep_their_columns_whatever_they_have() -> None:
    text = table(("name", "b"), [(code("a|b"), "1"), (code("c\\|d"), "22")])
    lines = text.splitlines()
    assert lines[0] == "| name     | b   |"
    assert len(set(map(len, lines))) == 1
    for line in lines:
        assert len(re.findall(r"(?<!\\)\|", line)) == 3


def test_columns_of_wide_characters_are_aligned() -> None:
    lines = table(("name", "b"), [("モデル", "1"), ("model", "2")]).splitlines()
    assert lines[2:] == ["| モデル | 1   |", "| model  | 2   |"]


def test_a_table_without_rows_is_left_out() -> None:
    assert table(("a", "b"), []) == ""


def test_what_is_folded_is_markdown_again() -> None:
    assert folded("title", "- one\n").startswith("<details><summary>title</summary>\n\n- one\n")
