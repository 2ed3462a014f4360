"""Many rows at once, on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, select

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.bulk import Rows, ids_of_series, insert_missing, insert_rows
from pytest_mlms.keep.history.store import open_history, writing

COLUMNS = ("key", "parts", "name", "quantity", "unit", "better", "control")
MANY = 1_000
"""Series that PostgreSQL takes by COPY."""

TEXTS = ["", "\\N", "\\.", "a\tb\nc\r\\d", "quotes \"'", "ключ 漢字 🎲", "%s ? :name {}"]


@pytest.fixture
def connection(address: str) -> Iterator[Connection]:
    """A connection of a transaction that writes to a new history."""
    history = open_history(address)
    with writing(history) as opened:
        yield opened
    history.dispose()


def series(*keys: str, name: str = "n") -> Rows:
    of_all = ("{}", name, "latency_p50", "s", "lower", False)
    return Rows(schema.series, COLUMNS, [(key, *of_all) for key in keys])


def named(connection: Connection) -> dict[str, str]:
    rows = connection.execute(select(schema.series.c.key, schema.series.c.name))
    return {row.key: row.name for row in rows}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_read_as_they_were_written(connection: Connection, text: str) -> None:
    columns = ("lock_sha256", "framework", "python", "driver")
    insert_rows(connection, Rows(schema.stack, columns, [("1", text, None, None)]))
    row: Any = connection.execute(select(schema.stack)).one()
    assert (row.framework, row.python) == (text, None)


@pytest.mark.parametrize("count", [3, MANY])
def test_rows_that_are_there_are_left_as_they_are(connection: Connection, count: int) -> None:
    keys = [f"{number:04}" for number in range(count)]
    insert_missing(connection, series(*keys[: count // 2], name="old"))
    insert_missing(connection, series(*keys, name="new"))
    found = named(connection)
    assert sorted(found) == keys
    assert [found[key] for key in keys].count("old") == count // 2


def test_many_rows_may_come_twice_in_one_transaction(connection: Connection) -> None:
    for start in range(2):
        keys = [f"{number:04}" for number in range(start, MANY + start)]
        insert_missing(connection, series(*keys))
    assert len(named(connection)) == MANY + 1


def test_ids_are_those_of_the_keys_that_there_are(connection: Connection) -> None:
    insert_missing(connection, series("b", "a"))
    ids = ids_of_series(connection, ["a", "b", "c"])
    found = connection.execute(select(schema.series.c.key, schema.series.c.id))
    assert ids == {row.key: row.id for row in found}
    assert set(ids) == {"a", "b"}


def test_without_rows_there_is_no_statement(connection: Connection) -> None:
    insert_rows(connection, series())
    insert_missing(connection, series())
    assert ids_of_series(connection, []) == {}
    assert named(connection) == {}
