"""Queries of the index: the lists of a large portal must not read or sort every item."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.portal.catalog import Catalog
from pytest_mlms.portal.run_index import RunIndex
from tests.support.histories import write_run


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
