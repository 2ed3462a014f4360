"""Queries of the index: the lists of a large portal must not read or sort every item."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_mlms.keep.history import run_lines as history_lines
from pytest_mlms.keep.history.run_content import gather
from pytest_mlms.show.pages.run import read_run
from pytest_mlms.show.portal.catalog import Catalog, RunViews
from pytest_mlms.show.portal.run_index import RunIndex
from tests.support.histories import item_line, run_lines, run_name, write_lines, write_run


class RecordingIndex(RunIndex):
    """An index that keeps how SQLite answers each query of items."""

    def __init__(self, results: Path) -> None:
        super().__init__(results, longest_line=1 << 24)
        self.plans: list[str] = []

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        explained = super().rows(f"EXPLAIN QUERY PLAN {query}", *values)
        self.plans += [row["detail"] for row in explained]
        return super().rows(query, *values)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[RecordingIndex]:
    for number in range(2):
        write_run(tmp_path, number, items=2)
    made = RecordingIndex(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("of", ["", "model", "host", "stack"])
def test_a_page_of_items_is_found_in_the_order_of_an_index_and_counted_by_it(
    index: RecordingIndex, of: str
) -> None:
    catalog = Catalog(index)
    value = {"": "", "model": "model-1", "host": "vm", "stack": "here"}[of]
    page = catalog.items(50, 0, **({of: value} if of else {}))
    assert page.total == len(page.rows) == (2 if of == "model" else 4)
    found, counted = index.plans
    expected = f"SEARCH item USING {{}}item_by_{of or 'time'} ({of and of + '=? AND '}is_last=?)"
    assert found == expected.format("INDEX ")
    assert counted == expected.format("COVERING INDEX ")


@pytest.mark.parametrize("name", ["models", "hosts", "stacks"])
def test_a_list_of_places_or_models_reads_an_index_only(index: RecordingIndex, name: str) -> None:
    assert getattr(Catalog(index), name)()
    read = [plan for plan in index.plans if plan.startswith(("SCAN", "SEARCH"))]
    assert read
    assert all(" USING COVERING INDEX " in plan for plan in read)
    assert not any("TEMP B-TREE" in plan for plan in index.plans)


@pytest.mark.parametrize("of", ["host", "stack"])
def test_the_software_of_a_place_reads_an_index_only(index: RecordingIndex, of: str) -> None:
    (row,) = Catalog(index).software(**{of: {"host": "vm", "stack": "here"}[of]})
    assert row.items == 4
    assert index.plans[0].startswith("SEARCH software USING COVERING INDEX")


TIMES = st.sampled_from([*(f"2026-01-0{day}T03:00:00.000+00:00" for day in (1, 2, 3)), "soon", ""])
JOB = {"service": "Jenkins", "url": None, "event": "push"}
LINES = st.lists(
    st.one_of(
        st.just({"type": "run"}),
        st.builds(dict, type=st.just("run"), began=TIMES, ci=st.sampled_from([None, {}, JOB, 3])),
        st.builds(dict, type=st.just("end"), time=TIMES, exit_status=st.sampled_from([0, 1])),
        st.builds(
            dict,
            type=st.sampled_from(["item", "item", "teardown"]),
            nodeid=st.sampled_from(["m.yaml::test_a", "m.yaml::test_b"]),
            repetition=st.sampled_from([1, 2]),
            verdict=st.sampled_from(["PASSED", "FAILED"]),
            message=st.sampled_from(["", "no"]),
        ),
        st.just({}),  # a line that is none
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(LINES, st.integers(0, 12), st.booleans())
def test_lists_pages_and_reports_say_the_same_of_any_lines(
    lines: list[dict[str, Any]], cut: int, has_end: bool
) -> None:
    name = run_name(0)
    texts = [json.dumps({"type": "run", "run": name}), *map(text_of, lines)]
    with tempfile.TemporaryDirectory() as folder, closing(RunIndex(Path(folder), 1 << 24)) as index:
        path = Path(folder, name, "results.jsonl")
        path.parent.mkdir()
        whole = "".join(f"{text}\n" for text in texts)
        first = "".join(f"{text}\n" for text in texts[:cut])
        for shown in (first if has_end else first[:-1], whole):  # while it is written, and then
            path.write_text(shown)
            index.refresh(wait=True)
        catalog = Catalog(index)
        views = RunViews(Path(folder), index, catalog)
        view = read_run(path.parent)
        row = catalog.run(name)
        assert row is not None
        assert (row.exit_status, row.left_out) == (view.exit_status, view.left_out)
        assert (row.started_by, row.seconds) == (view.started_by, view.seconds)
        assert dict(row.counts) == {verdict.value: n for verdict, n in view.counts.items()}
        for item in view.items:
            page = views.item(name, view.numbers[item.nodeid])
            assert page is not None
            assert (page.verdict, page.teardown) == (item.verdict, item.teardown)


def text_of(line: dict[str, Any]) -> str:
    """Return a line of results of which only what differs is given."""
    if not line:
        return "none"
    return json.dumps({**item_line(0), **line} if line["type"] == "item" else line)


def test_a_results_file_that_is_written_anew_in_place_is_read_anew(tmp_path: Path) -> None:
    folder = write_run(tmp_path, 0)
    with closing(RunIndex(tmp_path, 1 << 24)) as index:
        index.refresh(wait=True)
        longer = list(run_lines(0, items=3, verdict="FAILED"))
        write_lines(folder, longer)  # the same inode, and longer
        index.refresh(wait=True)
        row = Catalog(index).run(folder.name)
    assert row is not None
    assert row.counts == {"FAILED": 3}


@pytest.mark.parametrize("began", [None, "2025-12-31T23:59:09.000+00:00"])
def test_a_run_started_when_its_first_session_began_and_an_old_one_at_its_first_line(
    tmp_path: Path, began: str | None
) -> None:
    folder = tmp_path / run_name(0)
    first, *others = run_lines(0)
    lines = [first if began is None else {**first, "began": began}, *others]
    write_lines(folder, [*lines, {**first, "began": "2026-03-01T00:00:00.000+00:00"}])
    with closing(RunIndex(tmp_path, 1 << 24)) as index:
        index.refresh(wait=True)
        row = Catalog(index).run(folder.name)
    assert row is not None
    data = (folder / "results.jsonl").read_bytes().splitlines(keepends=True)
    content = gather(history_lines.read_run(data, "it"))
    assert content is not None
    moments = (row.started, read_run(folder).time, content.run["started"])
    assert {datetime.fromisoformat(text) for text in moments} == {
        datetime.fromisoformat(began or first["time"])
    }


def test_a_line_that_is_too_long_is_left_out_of_the_page_of_its_run(tmp_path: Path) -> None:
    folder = tmp_path / run_name(0)
    write_lines(folder, list(run_lines(0, items=2, message="x" * 9_000)))
    with closing(RunIndex(tmp_path, 8_000)) as index:
        index.refresh(wait=True)
        views = RunViews(tmp_path, index, Catalog(index))
        view = views.run(folder.name)
    assert view is not None
    assert (view.left_out, len(view.items), view.exit_status) == (2, 0, 0)


def test_pages_have_what_was_read_while_the_disk_of_the_index_is_full(tmp_path: Path) -> None:
    write_run(tmp_path, 0)
    with closing(RunIndex(tmp_path, 1 << 24)) as index:
        index.refresh(wait=True)
        index._writer.execute("PRAGMA max_page_count = 1")  # no more than it has
        write_run(tmp_path, 1, items=200)
        index.refresh(wait=True)
        assert [row.name for row in Catalog(index).runs(9, 0).rows] == [run_name(0)]
        index._writer.execute(f"PRAGMA max_page_count = {1 << 20}")
        index.refresh(wait=True)
        assert [row.name for row in Catalog(index).runs(9, 0).rows] == [run_name(1), run_name(0)]
