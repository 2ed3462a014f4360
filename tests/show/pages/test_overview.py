"""The first screen: the answer to an upgrade, what needs a look, and the newest verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.keep.history.changes import newest_changes
from pytest_mlms.keep.history.store import open_to_read
from pytest_mlms.show.pages.html import ago
from pytest_mlms.show.pages.overview import Answer, Evaluated, Loss, Losses, answers_of
from pytest_mlms.show.pages.report import render_report
from pytest_mlms.show.pages.run import read_run
from pytest_mlms.show.pages.series import ChangeView, change_view
from tests.support.histories import add_slower_runs, run_name
from tests.support.report_runs import read_lines
from tests.support.result_lines import line_of, upgrade

UPGRADE = Evaluated(
    run="r",
    number=1,
    link="#a",
    nodeid="m.yaml::test_upgrade[new-vs-old]",
    model="m",
    stack="new",
    framework="onnxruntime",
    version="1.32.0",
    baseline="1.31.1",
    kind="upgrade",
    case="new-vs-old",
    machine="a machine",
    host="vm",
    verdict="PASSED",
    time="2026-11-28T04:00:00+00:00",
    whole=True,
)
MEASURED = replace(UPGRADE, kind="performance", nodeid="m.yaml::test_performance[new]", baseline="")
LOST = ChangeView(
    id=1,
    series=1,
    model="m",
    kind="performance",
    case="new-cpu-b1",
    machine="a machine",
    quantity="latency_p50",
    unit="s",
    first_run="r",
    started="2026-11-28T04:00:00+00:00",
    before=1.0,
    after=1.1,
    ratio=1.1,
    low=None,
    high=None,
    status="open",
    cause=None,
    confirmed_by=None,
    reason=None,
    is_worse=True,
    text="+10 %",
)


def the_answer(items: Sequence[Evaluated], *losses: Loss) -> Answer:
    (answer,) = answers_of(items, Losses(losses))
    return answer


def test_an_upgrade_that_passed_is_answered_with_yes_and_for_how_many_models() -> None:
    answer = the_answer([UPGRADE, MEASURED, replace(UPGRADE, model="n")])
    assert answer == ("yes", "onnxruntime 1.32.0", "2 of 2 upgrades passed, of 2 models")


@pytest.mark.parametrize(
    ("items", "word"),
    [
        ([replace(UPGRADE, verdict="REGRESSED")], "no"),
        ([UPGRADE, replace(UPGRADE, model="n", verdict="FAILED")], "no"),
        ([UPGRADE, replace(UPGRADE, model="n", verdict="SKIPPED")], "open"),
        ([UPGRADE, replace(UPGRADE, model="n", verdict="INCONCLUSIVE")], "open"),
        ([replace(UPGRADE, whole=False)], "open"),
        ([UPGRADE, replace(MEASURED, verdict="FAILED")], "open"),
        ([UPGRADE, replace(MEASURED, verdict="INCONCLUSIVE")], "open"),
        ([UPGRADE, replace(MEASURED, stack="else", verdict="ERROR")], "open"),
        ([UPGRADE, replace(MEASURED, version="1.31.1", stack="old", verdict="FAILED")], "yes"),
    ],
)
def test_what_is_bad_undecided_or_not_whole_is_not_answered_with_yes(
    items: list[Evaluated], word: str
) -> None:
    assert the_answer(items).word == word


@pytest.mark.parametrize(
    ("moved", "status", "word"),
    [
        ("onnxruntime 1.31.1 → 1.32.0, numpy 2 → 3", "open", "open"),
        ("onnxruntime 1.31.1 → 1.32.0", "confirmed", "no"),
        ("onnxruntime 1.31.1 → 1.32.0.post1", "confirmed", "yes"),
        ("host a → b", "open", "yes"),
        (None, "open", "open"),
        (None, "confirmed", "open"),
    ],
)
def test_a_change_for_the_worse_counts_where_the_version_came_with_it(
    moved: str | None, status: str, word: str
) -> None:
    loss = Loss(replace(LOST, status=status), 0, moved, None)
    assert the_answer([UPGRADE], loss).word == word


def test_changes_that_were_not_read_are_no_yes() -> None:
    (answer,) = answers_of([UPGRADE], Losses(are_all=False))
    assert answer.word == "open"


def test_sides_of_one_version_are_told_apart_by_the_stack() -> None:
    alike = [replace(UPGRADE, baseline="1.32.0")]
    assert the_answer(alike)[:2] == ("yes", "the stack new")
    assert the_answer(alike, Loss(LOST, 0, "numpy 2 → 3", None)).word == "open"
    elsewhere = replace(LOST, case="newest-cpu-b1")
    assert the_answer(alike, Loss(elsewhere, 0, "numpy 2 → 3", None)).word == "yes"


VERDICTS = st.sampled_from(["ERROR", "REGRESSED", "INCONCLUSIVE", "PASSED", "IMPROVED", "SKIPPED"])
ITEMS = st.builds(
    lambda kind, verdict, whole, model: replace(
        UPGRADE if kind else MEASURED, verdict=verdict, whole=whole, model=model
    ),
    st.booleans(),
    VERDICTS,
    st.booleans(),
    st.sampled_from("mno"),
)


@given(st.lists(ITEMS, max_size=6))
def test_yes_needs_all_of_it_to_be_fine(items: list[Evaluated]) -> None:
    for answer in answers_of(items, Losses()):
        upgrades = [each for each in items if each.kind == "upgrade"]
        fine = all(each.verdict in ("PASSED", "IMPROVED") for each in upgrades)
        quiet = all(each.verdict in ("PASSED", "IMPROVED", "SKIPPED") for each in items)
        whole = all(each.whole for each in items)
        assert (answer.word == "yes") == (fine and quiet and whole)


def words_of(page: str) -> str:
    """Return the text of a page without its markup."""
    body = page.partition("<body")[2]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def with_versions(line: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    """Return an upgrade whose rounds name the versions of both sides."""
    sides = {
        side: {"versions": {"onnxruntime": version}, "python": "3"}
        for side, version in (("a", before), ("b", after))
    }
    return {**line, "against": {"name": "old"}, "rounds": [{"figures": {}, "sides": sides}]}


def test_a_report_begins_with_the_answer_and_what_needs_a_look(tmp_path: Path) -> None:
    lines = [line_of(2), with_versions(upgrade(), "1.31.1", "1.32.0")]
    page = words_of(render_report([read_lines(tmp_path, lines)]))
    first, _, _ = page.partition("What failed or is undecided")
    assert "Not to onnxruntime 1.32.0 of 1 upgrade, 1 REGRESSED" in first
    assert "264 µs → 285 µs, ×1.079 (1.071 to 1.088) is 7.9 % more" in first
    assert "onnxruntime 1.31.1 → 1.32.0" in first
    assert "latency +7.9 % to 1.31.1" in first


def test_the_links_of_a_report_lead_to_its_own_items(tmp_path: Path) -> None:
    page = render_report([read_lines(tmp_path, [line_of(2), upgrade()])])
    inside = set(re.findall(r'href="#([^"]+)"', page))
    assert inside
    assert inside <= set(re.findall(r'id="([^"]+)"', page))
    assert 'href="/' not in page


def test_a_report_with_a_history_shows_trends_and_the_open_change(tmp_path: Path) -> None:
    address = str(tmp_path / "h.sqlite")
    add_slower_runs(address, tmp_path)
    page = render_report([read_run(tmp_path / run_name(23))], database=open_to_read(address))
    assert page.count('class="spark"') == 3, "two cells, and the change"
    text = words_of(page)
    assert "CHANGED model-0" in text
    assert "onnxruntime 1.32.0 → 1.33.0" in text
    assert "not confirmed by the gate" in text
    assert "since 2026-01-13 02:00:00" in text
    looks = text.partition("Look at these first")[2].partition("Each model")[0]
    assert "latency" in looks
    assert "model-1" not in looks


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "just now"),
        (61, "1 min ago"),
        (3 * 3600 + 5, "3 h ago"),
        (30 * 3600, "1 day ago"),
        (9 * 86400 + 5, "9 days ago"),
    ],
)
def test_a_time_is_told_by_how_long_ago_it_is(seconds: int, text: str) -> None:
    then = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    time = then.isoformat()
    assert ago(time) == (
        f'<time datetime="{time}" title="{time[:19].replace("T", " ")} UTC">{text}</time>'
    )


@pytest.mark.parametrize(
    "time",
    ["2020-01-02T03:04:05+00:00", "9999-12-31T23:59:59+00:00", "", "soon", "<b>", '"'],
)
def test_a_time_long_ago_to_come_or_damaged_is_as_it_is_written(time: str) -> None:
    shown = str(ago(time))
    assert "ago" not in shown
    assert "now" not in shown
    assert "<b>" not in shown
    assert shown.count('"') == 4


def test_a_change_view_has_both_levels(tmp_path: Path) -> None:
    address = str(tmp_path / "h.sqlite")
    add_slower_runs(address, tmp_path)
    with open_to_read(address).connect() as connection:
        found, total = newest_changes(connection, 2)
        assert (len(found), total > 2) == (2, True)
        none, of_none = newest_changes(connection, 5, statuses=("confirmed",))
        assert (none, of_none) == ([], 0)
        view = change_view(found[0])
    before, _, after = view.levels.partition(" → ")
    assert before
    assert after
    assert before != after
