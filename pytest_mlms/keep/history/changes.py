"""Changes of the history, and the decisions on them."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import Connection, Engine, Row, Select, func, select, update

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import Rows, insert_missing
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.shifts import NAMED
from pytest_mlms.keep.history.store import transact

Cause = Literal["software", "machine", "method", "noise"]
Status = Literal["open", "confirmed", "dismissed", "accepted", "undone"]

CAUSES: Mapping[Cause, Status] = {
    "software": "confirmed",
    "machine": "dismissed",
    "method": "dismissed",
    "noise": "dismissed",
}
"""The status of a change by its cause: only changes by other software are confirmed."""


@dataclass(frozen=True)
class Change:
    """A change of a series.

    Attributes:
        id: The number by which commands name it; 0 for a suspicion that the history doesn't have.
        series: The id of the series.
        parts: The properties that all points of the series have in common.
        quantity: The quantity.
        unit: Its unit.
        better: "lower" or "higher".
        control: True for a series of a host's control item.
        kind: "step", "drift" or "named".
        first_run: The first run after it.
        started: When that run started.
        found_run: The newest run when it was found.
        undone_run: The first run at the old level again.
        before: The level before it.
        after: The level after it, by all points since.
        ratio: The new level over the old one.
        low: The lower end of the ratio's 95 % interval.
        high: The upper end.
        cause: The cause, once it is known.
        status: The decision.
        confirmed_by: The run of the gate.
        reason: Why it was accepted or dismissed.
        decided: When it was accepted.
        decided_by: The user who accepted it.
        is_worse: True if the quantity became worse, by the levels when it was found. Later points
            near the old level may take the ratio to the other side of 1.
    """

    id: int
    series: int
    parts: Mapping[str, Any]
    quantity: str
    unit: str
    better: str
    control: bool
    kind: str
    first_run: str
    started: str
    found_run: str
    undone_run: str | None
    before: float
    after: float
    ratio: float
    low: float | None
    high: float | None
    cause: Cause | None
    status: Status
    confirmed_by: str | None
    reason: str | None
    decided: str | None
    decided_by: str | None
    is_worse: bool


def suspicions(history: Engine) -> list[Change]:
    """Return the open changes, the oldest first; ``change_scan.scan`` finds new ones."""
    return [change for change in read_changes(history) if change.status == "open"]


def read_changes(history: Engine) -> list[Change]:
    """Return all changes, the oldest first."""
    query = _select_changes().order_by(schema.run.c.started, schema.change.c.id)
    with history.connect() as connection:
        return [_change(row) for row in connection.execute(query)]


def newest_changes(
    connection: Connection,
    limit: int,
    offset: int = 0,
    series: Collection[int] | None = None,
    statuses: Collection[Status] = (),
) -> tuple[list[Change], int]:
    """Return some of the changes, the newest first, and how many there are in all.

    ``series`` and ``statuses`` leave out all others.
    """
    of = schema.change.c
    conditions = []
    if series is not None:
        conditions.append(of.series.in_(series))
    if statuses:
        conditions.append(of.status.in_(statuses))
    query = _select_changes().where(*conditions)
    total = connection.scalar(select(func.count()).select_from(schema.change).where(*conditions))
    newest = query.order_by(schema.run.c.started.desc(), of.id.desc())
    rows = connection.execute(newest.limit(limit).offset(offset))
    return [_change(row) for row in rows], total or 0


def _select_changes() -> Select[Any]:
    of = schema.series.c
    return (
        select(schema.change, of.parts, of.quantity, of.unit, of.better, of.control)
        .add_columns(schema.run.c.started)
        .join(schema.series, of.id == schema.change.c.series)
        .join(schema.run, schema.run.c.id == schema.change.c.first_run)
    )


def _change(row: Row[Any]) -> Change:
    """Return a change; its new level is by the ratio, which later points make better known."""
    is_worse = (row.after > row.before) == (row.better == "lower")
    change = Change(**row._mapping, is_worse=is_worse)
    if change.before * change.after <= 0:
        return change  # their ratio is that of the least value
    return replace(change, after=change.before * change.ratio)


def set_cause(
    history: Engine,
    change: int,
    cause: Cause,
    confirmed_by: str | None = None,
    reason: str | None = None,
) -> None:
    """Write the cause that the gate found, and the status that follows from it.

    An accepted change stays accepted. ``confirmed_by`` is the run of the gate.
    """
    of = schema.change.c
    values = {"cause": cause, "confirmed_by": confirmed_by, "reason": reason}
    changing = update(schema.change).where(of.id == change)
    deciding = changing.where(of.status == "open")

    def write(connection: Connection) -> None:
        connection.execute(changing.values(values))
        connection.execute(deciding.values(status=CAUSES[cause]))

    transact(history, write)


def add_decided(
    history: Engine, change: Change, cause: Cause, confirmed_by: str | None, reason: str
) -> None:
    """Write a suspicion that was only named, once the gate has found its cause.

    A confirmed one is a step from now on. A dismissed one is kept so that it isn't named again.
    """
    status = CAUSES[cause]
    row = {
        "series": change.series,
        "kind": "step" if status == "confirmed" else NAMED,
        "first_run": change.first_run,
        "found_run": change.found_run,
        "before": change.before,
        "after": change.after,
        "ratio": change.ratio,
        "low": change.low,
        "high": change.high,
        "cause": cause,
        "status": status,
        "confirmed_by": confirmed_by,
        "reason": reason,
    }
    rows = Rows(schema.change, list(row), [tuple(row.values())])
    transact(history, lambda connection: insert_missing(connection, rows))


def accept_changes(
    history: Engine, changes: Sequence[int], reason: str, user: str | None
) -> list[int]:
    """Accept changes; return those that were not accepted before, which alone are written.

    Raises HistoryError, and accepts none, where one is unknown.
    """
    of = schema.change.c
    now = datetime.datetime.now(datetime.timezone.utc)
    values = {
        "status": "accepted",
        "reason": reason,
        "decided": now.isoformat(timespec="seconds"),
        "decided_by": user,
    }

    def accept(connection: Connection) -> list[int]:
        statuses = dict(connection.execute(select(of.id, of.status)).all())
        unknown = [number for number in changes if number not in statuses]
        if unknown:
            raise HistoryError(_unknown(unknown, statuses))
        wanted = dict.fromkeys(changes)
        accepted = [number for number in wanted if statuses[number] != "accepted"]
        connection.execute(update(schema.change).where(of.id.in_(accepted)).values(values))
        return accepted

    return transact(history, accept)


def _unknown(unknown: Sequence[int], known: Collection[int]) -> str:
    names = ", ".join(map(str, unknown))
    if not known:
        return f"there is no change {names}; mlms history changes finds them"
    return f"there is no change {names}; there are {_ranges(sorted(known))}"


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers as text, such as "1-3, 7"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return ", ".join(map(_range, ranges))


def _range(numbers: Sequence[int]) -> str:
    first = numbers[0]
    last = numbers[-1]
    if first == last:
        return str(first)
    return f"{first}-{last}"
