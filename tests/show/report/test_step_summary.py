"""Tests of the summary in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_mlms.show.report import step_summary as module
from pytest_mlms.show.report.step_summary import MOST_BYTES, code, code_block, folded, table
from tests.support.result_lines import HOSTILE, broken_limit, line_of, undecided, upgrade
from tests.support.views import views_of


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


def step_summary(lines: Sequence[dict[str, Any]], most: int = MOST_BYTES) -> str:
    return module.step_summary(views_of(lines), most)


def test_items_come_by_verdict_worst_first_and_passing_ones_are_folded() -> None:
    text = step_summary([line_of(1), undecided(2), broken_limit(3), upgrade(4)])
    headings = re.findall(r"### \w+|<summary>[A-Z]+ ", text)
    assert headings == ["### FAILED", "### REGRESSED", "### INCONCLUSIVE", "<summary>PASSED "]
    assert "## mlms: 1 model: 1 failed, 1 regressed, 1 undecided, 1 passed" in text


def test_a_row_has_what_was_measured_the_limit_and_where_it_is_set() -> None:
    rows = [line for line in step_summary([broken_limit()]).splitlines() if "latency" in line]
    assert rows[0] == (
        "| digits | here-cpu-b1 | latency p50 | 4.00 ms (3.00 ms to 5.00 ms) | limit at most 1.00 ms "
        "| models/m.yaml:88 |"
    )


def test_an_upgrade_has_both_sides_and_its_tolerance() -> None:
    assert (
        "| latency | 264 µs &#8594; 285 µs, &#215;1.079 (1.071 to 1.088) | tolerance 3 % more "
        "| models/m.yaml:95 |"
    ) in step_summary([upgrade()])


def test_an_item_without_limits_has_a_row_with_its_message() -> None:
    failed = line_of(verdict="ERROR", outcome="failed", limits=[], message="no such file")
    assert "| - | no such file | - | models/m.yaml:9 |" in step_summary([failed])


def test_names_and_messages_are_shown_and_never_interpreted() -> None:
    model = {"path": "m.yaml", "name": HOSTILE, "version": "1.0.0"}
    text = step_summary([broken_limit(manifest=model, message=HOSTILE, case=HOSTILE)])
    (row,) = [line for line in text.splitlines() if "latency" in line]
    assert row.count("|") == 7
    assert "`" not in row
    assert "<script>" not in text
    assert "&#124;b&#96;c" in row


def test_a_summary_keeps_its_bytes_and_says_what_it_leaves_out() -> None:
    results = [broken_limit(number, message="é" * 7000) for number in range(200)]
    text = step_summary(results)
    assert len(text.encode()) <= MOST_BYTES
    assert text.endswith("This summary is cut: results.jsonl has all 200 items of the run.\n\n")
    assert text.count("<details>") == text.count("</details>")


def test_a_thousand_items_that_passed_are_all_there() -> None:
    text = step_summary([line_of(number) for number in range(1000)])
    assert "PASSED (901 to 1,000 of 1,000)" in text
    assert "cut" not in text


def test_where_there_is_no_room_there_is_no_summary() -> None:
    assert step_summary([broken_limit()], 100) == ""
