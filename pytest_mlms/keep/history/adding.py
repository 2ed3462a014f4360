"""Runs added to a history; a run that is added again changes nothing.

Many rows are added at once, on both databases, by statements that SQLAlchemy need not compile for
each."""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, delete, select, update

from pytest_mlms.core.files import open_regular
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.run_content import RunContent, StoredLine, gather
from pytest_mlms.keep.history.run_lines import read_run
from pytest_mlms.keep.history.store import transact

_FEW = 200
"""Rows up to which PostgreSQL takes INSERT as quickly as COPY."""

_IDS = {
    "sqlite": "SELECT key, id FROM series WHERE key IN (SELECT value FROM json_each(?))",
    "postgresql": "SELECT key, id FROM series WHERE key = ANY(%s)",
}


@dataclass
class Rows:
    """Rows of a table: values in the order of ``columns``; JSON is its text."""

    table: Table
    columns: Sequence[str]
    values: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def names(self) -> str:
        """The columns' names for SQL."""
        return ", ".join(f'"{name}"' for name in self.columns)


def insert_rows(connection: Connection, rows: Rows) -> None:
    """Insert rows that the table has not."""
    if not rows.values:
        return
    if connection.dialect.name == "postgresql":
        _copy(connection, rows, rows.table.name)
    else:
        connection.exec_driver_sql(_insert(rows, "?"), rows.values)


def insert_missing(connection: Connection, rows: Rows) -> None:
    """Insert those of the rows that the table lacks by one of its unique keys."""
    if not rows.values:
        return
    is_server = connection.dialect.name == "postgresql"
    if not is_server or len(rows.values) < _FEW:
        statement = f"{_insert(rows, '%s' if is_server else '?')} ON CONFLICT DO NOTHING"
        connection.exec_driver_sql(statement, rows.values)
        return
    table = rows.table.name
    fresh = f"fresh_{table}"
    connection.exec_driver_sql(
        f"CREATE TEMPORARY TABLE IF NOT EXISTS {fresh} ON COMMIT DROP AS SELECT {rows.names} "
        f'FROM "{table}" WITH NO DATA'
    )
    connection.exec_driver_sql(f"TRUNCATE {fresh}")
    _copy(connection, rows, fresh)
    connection.exec_driver_sql(
        f'INSERT INTO "{table}" ({rows.names}) SELECT * FROM {fresh} ON CONFLICT DO NOTHING'
    )


def ids_of_series(connection: Connection, keys: Iterable[str]) -> dict[str, int]:
    """Return the ids of series by their keys, of those that there are."""
    names = sorted(keys)  # in the order of the index
    dialect = connection.dialect.name
    argument = names if dialect == "postgresql" else json.dumps(names)
    rows = connection.exec_driver_sql(_IDS[dialect], (argument,)).all()
    return dict(map(tuple, rows))


def _insert(rows: Rows, mark: str) -> str:
    marks = ", ".join(mark for _ in rows.columns)
    return f'INSERT INTO "{rows.table.name}" ({rows.names}) VALUES ({marks})'


def _copy(connection: Connection, rows: Rows, table: str) -> None:
    """Send rows by COPY, ten times as fast as by INSERT."""
    driver: Any = connection.connection.driver_connection
    statement = f'COPY "{table}" ({rows.names}) FROM STDIN'
    with driver.cursor() as cursor, cursor.copy(statement) as copy:
        for row in rows.values:
            copy.write_row(row)


_SERIES_COLUMNS = ("key", "parts", "name", "quantity", "unit", "better", "control")
_POINT_COLUMNS = (
    "series",
    "run",
    "number",
    "started",
    "host",
    "stack",
    "verdict",
    "value",
    "low",
    "high",
    "replicates",
)


@dataclass(frozen=True)
class Added:
    """Additions of a run: new lines, and points of the items among them."""

    run: str
    lines: int
    points: int
    is_new: bool


def add_run(history: Engine, folder: Path) -> Added:
    """Add what the history lacks of a run's folder, or of its results.jsonl.

    A run may be added while it is written: the rest is added the next time. Any number of
    processes may add it at once. Raises HistoryError where there is no run, where a line is not
    valid, or where the history has other lines of the run's name; nothing is then added.
    """
    path = folder / "results.jsonl" if folder.is_dir() else folder
    try:
        with open_regular(path) as file:
            return add_lines(history, file, str(path))
    except OSError as error:
        raise HistoryError(f"{path}: {error.strerror}; name a run's folder") from None


def add_lines(history: Engine, lines: Iterable[bytes], where: str) -> Added:
    """Add what the history lacks of the lines of a results file; ``where`` names it in errors."""
    with _without_collector():
        content = gather(read_run(lines, where))
        if content is None:
            raise HistoryError(f"{where}: it has no whole line; name the results.jsonl of a run")
        return transact(history, lambda connection: add_content(connection, content, where))


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Stop the garbage collector, which takes a third of the time of a large run.

    It would examine a million new objects again and again, and none of them is in a cycle.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


def add_content(connection: Connection, content: RunContent, where: str) -> Added:
    """Add what the history lacks of a run, in the transaction of ``connection``."""
    have = _lock_run(connection, content, where)
    new_lines = content.lines[have:]
    if not new_lines:
        return Added(content.name, 0, 0, is_new=False)
    row = schema.run.c.id == content.name
    connection.execute(update(schema.run).where(row).values(content.run))
    lines = Rows(schema.line, ("run", *StoredLine._fields))
    lines.values += [(content.name, *line) for line in new_lines]
    insert_rows(connection, lines)

    stacks = Rows(schema.stack, ("lock_sha256", "framework", "python", "driver"))
    packages = Rows(schema.package, ("lock_sha256", "name", "version"))
    for digest, software in sorted(content.stacks.items()):
        stack = (digest, software.framework, software.python, software.driver)
        stacks.values.append(stack)
        for name, version in sorted(software.packages.items()):
            packages.values.append((digest, name, version))
    insert_missing(connection, stacks)
    insert_missing(connection, packages)

    ids = _add_series(connection, content)
    _remove_superseded(connection, content, new_lines)
    points = _points(content, ids, have)
    insert_rows(connection, points)
    return Added(content.name, len(new_lines), len(points.values), is_new=not have)


def _lock_run(connection: Connection, content: RunContent, where: str) -> int:
    """Take the row of the run, which is made if need be; return how many lines the history has.

    Raises HistoryError where they are other ones.
    """
    run = Rows(schema.run, tuple(content.run), [tuple(content.run.values())])
    insert_missing(connection, run)
    row = schema.run.c.id == content.name
    connection.execute(select(schema.run.c.id).where(row).with_for_update())
    query = (
        select(schema.line.c.number, schema.line.c.json)
        .where(schema.line.c.run == content.name)
        .order_by(schema.line.c.number)
        .execution_options(yield_per=500)
    )
    count = 0
    for number, text in connection.execute(query):
        count = number + 1
        if number < len(content.lines) and content.lines[number].json != text:
            raise HistoryError(
                f"{where}:{count}: the history has another line of a run with the name "
                f"{content.name}; a run is never overwritten"
            )
    return count


def _add_series(connection: Connection, content: RunContent) -> Mapping[str, int]:
    """Return the ids of the content's series by their keys; those that are new are made."""
    ids = ids_of_series(connection, content.series)
    new_keys = sorted(set(content.series).difference(ids))
    if not new_keys:
        return ids
    rows = Rows(schema.series, _SERIES_COLUMNS)
    for key in new_keys:  # in one order, so that no two writers wait for each other
        series = content.series[key]
        of_quantity = (series.quantity, series.unit, series.better)
        control = bool(series.common.parts["control"])
        rows.values.append((key, series.text, series.name, *of_quantity, control))
    insert_missing(connection, rows)
    return {**ids, **ids_of_series(connection, new_keys)}


def _remove_superseded(
    connection: Connection, content: RunContent, new_lines: Sequence[StoredLine]
) -> None:
    """Remove the points of earlier lines that new lines of their items replace."""
    nodeids = {line.nodeid for line in new_lines if line.nodeid is not None}
    counted = {item.number for item in content.items.values()}
    earlier = [line for line in content.lines[: new_lines[0].number] if line.nodeid in nodeids]
    numbers = [line.number for line in earlier if line.number not in counted]
    if numbers:
        of_run = schema.point.c.run == content.name
        of_lines = schema.point.c.number.in_(numbers)
        connection.execute(delete(schema.point).where(of_run, of_lines))


def _points(content: RunContent, ids: Mapping[str, int], first: int) -> Rows:
    """Return the rows of the points of lines from number ``first`` on."""
    rows = Rows(schema.point, _POINT_COLUMNS)
    started = content.run["started"]
    for item in content.items.values():
        if item.number < first:
            continue
        for key, point in item.points.items():
            of_item = (content.name, item.number, started, item.host, item.stack, item.verdict)
            interval = (_real(point.value), _real(point.low), _real(point.high))
            rows.values.append((ids[key], *of_item, *interval, point.replicates))
    rows.values.sort(key=itemgetter(0))  # rows in the order of an index are added faster
    return rows


def _real(number: float | None) -> float | None:
    """Return a number of JSON as a float: a whole one may be too large for a database's integer."""
    return None if number is None else float(number)
