"""The first screen: the answer to an upgrade, what needs a look, and the newest verdicts."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import update

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.change_scan import scan
from pytest_mlms.keep.history.changes import newest_changes, read_changes
from pytest_mlms.keep.history.store import open_history, open_to_read
from pytest_mlms.show.pages.html import ago
from pytest_mlms.show.pages.report import render_report
from pytest_mlms.show.pages.run import read_run
from pytest_mlms.show.pages.series import change_view
from pytest_mlms.show.pages.trends import read_losses
from tests.support.histories import (
    add_slower_runs,
    item_line,
    run_lines,
    run_name,
    write_lines,
)
from tests.support.report_runs import read_lines
from tests.support.result_lines import line_of, upgrade, with_versions


def words_of(page: str) -> str:
    """Return the text of a page without its markup."""
    body = page.partition("<body")[2]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


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


def test_answers_without_room_are_counted(tmp_path: Path) -> None:
    lines = []
    for number in range(9):
        line = {
            **with_versions(upgrade(), "1.0", f"1.{number + 1}"),
            "stack": {"name": f"s{number}"},
        }
        lines.append({**line, "nodeid": f"m.yaml::test_upgrade[{number}]"})
    page = words_of(render_report([read_lines(tmp_path, lines)]))
    assert page.count("Not to onnxruntime") == 6
    assert "3 more answers have no room here" in page


def test_an_open_change_names_the_upgrade_that_shows_it(tmp_path: Path) -> None:
    address = str(tmp_path / "h.sqlite")
    add_slower_runs(address, tmp_path)
    head, end = run_lines(24, items=0)
    line = with_versions({**item_line(24), **upgrade()}, "1.32.0", "1.33.0")
    for field in ("run", "time", "manifest", "machine"):
        line[field] = item_line(24)[field]
    write_lines(tmp_path / run_name(24), [head, line, end])
    runs = [read_run(tmp_path / run_name(night)) for night in (23, 24)]
    text = words_of(render_report(runs, database=open_to_read(address)))
    assert "not confirmed by itself; an upgrade to 1.33.0 REGRESSED" in text


def test_changes_that_began_near_each_other_have_one_date_on_the_first_screen(
    tmp_path: Path,
) -> None:
    address = str(tmp_path / "h.sqlite")
    add_slower_runs(address, tmp_path)
    history = open_history(address)
    with history.begin() as connection:
        for change in read_changes(history):  # places of changes are estimates
            later = update(schema.change).where(schema.change.c.id == change.id)
            connection.execute(later.values(first_run=run_name(12 + change.id % 3)))
    (loss,) = read_losses(history, ["model-0"], 1).found
    assert loss.others == len(loss.ids) - 1 > 1
    head, end = run_lines(24, items=0)
    line = with_versions({**item_line(24), **upgrade()}, "1.32.0", "1.33.0")
    for field in ("run", "time", "manifest", "machine"):
        line[field] = item_line(24)[field]
    line["stack"] = {"name": "new"}
    write_lines(tmp_path / run_name(24), [head, line, end])
    runs = [read_run(tmp_path / run_name(night)) for night in (23, 24)]
    page = render_report(runs, database=history)
    assert re.findall(r'since <time datetime="([^"]*)"', page) == [loss.change.started] * 3
    history.dispose()


def test_a_report_without_a_history_says_nothing_of_changes(tmp_path: Path) -> None:
    runs = [read_lines(tmp_path, [line_of(2), line_of(3)])]
    assert "none of these cases failed." in words_of(render_report(runs))
    unread = words_of(render_report(runs, lack="no history to read"))
    assert "Not all is seen here: no history to read." in unread
    assert "Nothing needs a look" not in unread


def test_changes_of_two_stacks_at_one_run_are_two_losses(tmp_path: Path) -> None:
    address = str(tmp_path / "h.sqlite")
    history = open_history(address)
    for night in range(24):
        head, end = run_lines(night, items=0)
        lines = []
        for name in ("old", "new"):
            ratio = (1.1 if night >= 12 else 1.0) + 0.001 * (night % 3)
            line = item_line(night, 0, ratio, launch={"command": ["python"], "lock": []})
            line["stack"]["name"] = name
            lines.append({**line, "nodeid": f"{line['nodeid']}{name}"})
        write_lines(tmp_path / run_name(night), [head, *lines, end])
        add_run(history, tmp_path / run_name(night))
    scan(history)
    losses = read_losses(history, ["model-0"], 1)
    assert sorted(loss.stack for loss in losses.found) == ["new", "old"]
    assert [loss.series is None for loss in losses.found] == [False, True]
    assert losses.lack == ""
    history.dispose()


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
        none, of_none = newest_changes(connection, 5, statuses=["confirmed"])
        assert (none, of_none) == ([], 0)
        view = change_view(found[0])
    before, _, after = view.levels.partition(" → ")
    assert before
    assert after
    assert before != after
