"""Tests of the summary in Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pytest_mlms.show.report import step_summary as module
from pytest_mlms.show.report.step_summary import MOST_BYTES
from tests.support.result_lines import HOSTILE, broken_limit, line_of, undecided, upgrade
from tests.support.views import views_of


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
