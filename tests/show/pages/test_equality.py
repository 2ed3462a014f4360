"""Terminal, report, page, its JSON and the summary of CI show the same verdicts and numbers of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.serialization import from_plain, to_plain
from pytest_mlms.decide.upgrade.labels import format_change
from pytest_mlms.show.pages.item import findings_of
from pytest_mlms.show.pages.numbers import interval_text, value_text
from pytest_mlms.show.pages.report import render_report
from pytest_mlms.show.pages.run import RunView
from pytest_mlms.show.report.reporter import _shown
from pytest_mlms.show.report.step_summary import step_summary
from tests.show.report.test_terminal import written
from tests.support.portals import Portal, serving
from tests.support.report_runs import HEAD, every_verdict, read_lines

OF_TERMINAL = ("latency_p50", "load_time")
"""Quantities that have columns in a terminal."""


def items_with_numbers_of_their_own() -> Sequence[dict[str, Any]]:
    """Return items with every verdict, no two of which have a number in common."""
    items = []
    for number, item in enumerate(every_verdict(), 1):
        made = {**item, "batch_size": 8, "processes": [{"steady": True, "waited": None}]}
        if item["kind"] == "upgrade":
            items.append(made)
            continue
        made["estimates"] = {}
        for index, name in enumerate(OF_TERMINAL):
            value = 0.00101 * number + 0.1 * index
            ends = {"value": value, "low": 0.9 * value, "high": 1.1 * value}
            made["estimates"][name] = {**ends, "unit": "s", "lacking": "", "replicates": 3}
        items.append(made)
    return items


@pytest.fixture(scope="module")
def items() -> Sequence[dict[str, Any]]:
    return items_with_numbers_of_their_own()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def run(items: Sequence[dict[str, Any]], results: Path) -> RunView:
    return read_lines(results / str(HEAD["run"]), items)


@pytest.fixture(scope="module")
def plain(run: RunView) -> list[dict[str, Any]]:
    """The items as JSON has them."""
    found: list[dict[str, Any]] = json.loads(json.dumps(to_plain(run)))["items"]
    return found


@pytest.fixture(scope="module")
def portal(run: RunView, results: Path) -> Iterator[Portal]:
    with serving(results, token=None) as made:
        yield made


@pytest.fixture(scope="module")
def pages(run: RunView, portal: Portal) -> dict[str, str]:
    """The text of the page of each item, by its anchor."""
    numbers = portal.get(f"/api/v1/runs/{run.name}").json["numbers"]
    found = {}
    for item in run.items:
        page = portal.get(f"/runs/{run.name}/items/{numbers[item.nodeid]}").text
        found[item.anchor] = _text_of(page.partition("<h1")[2])
    return found


@pytest.fixture(scope="module")
def blocks(run: RunView) -> dict[str, str]:
    """The text of each item in the report, by its anchor."""
    _, *parts = render_report([run]).split('id="item-')
    found = {}
    for part in parts:
        anchor, _, rest = part.partition('">')
        found[f"item-{anchor}"] = _text_of(rest)
    return found


def _text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


@pytest.fixture(scope="module")
def rows(items: Sequence[dict[str, Any]]) -> list[str]:
    """The rows of the terminal's tables, wide enough for a line each."""
    return written([_shown(item) for item in items], width=400).lines


def test_the_run_has_every_verdict(plain: list[dict[str, Any]]) -> None:
    assert {item["verdict"] for item in plain} == {verdict.value for verdict in Verdict}


def test_numbers_and_verdicts_of_items_are_the_same(
    run: RunView,
    plain: list[dict[str, Any]],
    blocks: dict[str, str],
    pages: dict[str, str],
    rows: list[str],
) -> None:
    for view, item in zip(run.items, plain, strict=True):
        block = blocks[view.anchor]
        page = pages[view.anchor]
        assert item["verdict"] in page.split()[:3]
        assert block.split()[0] == item["verdict"]
        for estimate in item["estimates"].values():
            value = value_text(estimate["value"], estimate["unit"])
            row = next(line for line in rows if f" {value} " in f"{line} ")
            assert f" {item['case']} " in row
            interval = (estimate["value"], estimate["low"], estimate["high"], estimate["unit"])
            assert interval_text(*interval) in block
            assert interval_text(*interval) in page


def test_an_upgrade_is_the_same(
    run: RunView,
    plain: list[dict[str, Any]],
    blocks: dict[str, str],
    pages: dict[str, str],
    rows: list[str],
) -> None:
    (view,) = [item for item in run.items if item.kind == "upgrade"]
    (item,) = [item for item in plain if item["kind"] == "upgrade"]
    (compared,) = from_plain(list[Comparison], item["comparisons"])
    change = format_change(compared)
    assert change in blocks[view.anchor]
    assert change in pages[view.anchor]
    row = next(line for line in rows if change in line)
    assert row.startswith(item["verdict"])


def test_counts_are_the_same(run: RunView, plain: list[dict[str, Any]]) -> None:
    page = render_report([run])
    shown = re.findall(r"<b>([\d,]+)</b> ([\w ]+)</li>", page)
    assert sum(int(count) for count, _ in shown) == len(plain)
    assert dict(run.counts) == dict.fromkeys(Verdict, 1)


def test_what_decided_an_item_is_the_same(
    run: RunView, blocks: dict[str, str], pages: dict[str, str]
) -> None:
    found = [(item, finding) for item in run.items for finding in findings_of(item)]
    assert len(found) >= 3
    for item, finding in found:
        for text in (finding.measured, finding.bound, finding.place, finding.distance):
            assert text in blocks[item.anchor]
            assert text in pages[item.anchor]


def test_the_json_of_a_portal_is_that_of_the_view(
    run: RunView, plain: list[dict[str, Any]], portal: Portal
) -> None:
    found = portal.get(f"/api/v1/runs/{run.name}").json
    assert [_without_folder(item) for item in found["items"]] == list(map(_without_folder, plain))
    listed = portal.get("/api/v1/runs").json["runs"][0]
    assert listed["counts"] == {verdict.value: count for verdict, count in run.counts.items()}


def _without_folder(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "folder"}


def test_what_decided_an_item_is_the_same_in_the_summary_of_ci(run: RunView) -> None:
    summary = " ".join(unescape(step_summary(run.items)).split())
    for item in run.items:
        for found in findings_of(item):
            row = (found.quantity, found.measured, found.bound, found.place)
            assert f"| {' | '.join(row)} |" in summary
