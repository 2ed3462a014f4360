"""Changes that are carried over to another history, where ids of series and of changes differ.

A change names its series by a point: the line of its first run, and the quantity. Thus its series
is found also where another version makes other keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, text, update

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.errors import HistoryError

_READ = """
SELECT change.*, series.quantity AS series_quantity, series.key AS series_key,
       (SELECT min(point.number) FROM point
        WHERE point.series = change.series AND point.run = change.first_run) AS line
FROM change JOIN series ON series.id = change.series ORDER BY change.id
"""
_LOCAL = ("id", "series", "series_quantity", "series_key", "line")


def read_changes(connection: Connection) -> Iterator[dict[str, Any]]:
    """Yield the changes of a history, which may be of an older version."""
    for found in connection.execute(text(_READ)).mappings():
        values = {name: value for name, value in found.items() if name not in _LOCAL}
        yield {
            "line": found["line"],
            "quantity": found["series_quantity"],
            "key": found["series_key"],
            "values": values,
        }


def add_changes(connection: Connection, changes: Iterable[Mapping[str, Any]], where: str) -> int:
    """Add changes to a history that has their runs; return how many have no series there.

    Decisions of a person or of the gate stay, on either side. Raises HistoryError.
    """
    missing = 0
    for change in changes:
        try:
            values = _known_values(change["values"])
            series = _series_of(connection, change, values["first_run"])
        except (KeyError, TypeError, AttributeError):
            raise HistoryError(f"{where}: it has a change that is not one of an export") from None
        if series is None:
            missing += 1
        else:
            values["series"] = series
            _put(connection, values)
    return missing


def _known_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of columns that changes have in this version."""
    known = {}
    for column in schema.change.columns:
        name = column.name
        if name in values and name not in _LOCAL:
            known[name] = values[name]
    return known


def _series_of(connection: Connection, change: Mapping[str, Any], run: str) -> int | None:
    """Return the id of a change's series, by its point or by its key; None for none."""
    point = schema.point.c
    series = schema.series.c
    by_point = (
        select(series.id)
        .join(schema.point, point.series == series.id)
        .where(point.run == run, point.number == change["line"])
        .where(series.quantity == change["quantity"])
    )
    by_key = select(series.id).where(series.key == change["key"])
    found: int | None = connection.scalar(by_point) or connection.scalar(by_key)
    return found


def _put(connection: Connection, values: Mapping[str, Any]) -> None:
    """Add a change, or write the decision on it where the history has none."""
    change = schema.change.c
    of_series = change.series == values["series"]
    of_run = change.first_run == values["first_run"]
    status = connection.scalar(select(change.status).where(of_series, of_run))
    if status is None:
        connection.execute(insert(schema.change), values)
    elif status == "open" and values["status"] != "open":
        deciding = update(schema.change).where(of_series, of_run)
        connection.execute(deciding.values(values))
