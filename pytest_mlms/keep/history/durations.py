"""Durations of items in the runs of a history."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from pytest_mlms.keep.history import schema

_RUNS = 10  # of each: a history may have those of several projects


def durations_in(connection: Connection, machine_class: str) -> dict[str, float]:
    """Return the seconds of each item, by node id, in the last runs.

    The latest run on a machine of this class counts, on whichever host; for an item that none of
    the last ten of these had, the latest run on any machine.
    """
    found: dict[str, float] = {}
    runs = [*_last_runs(connection), *_last_runs(connection, machine_class)]
    for run in runs:
        found.update(_durations_of(connection, run))
    return found


def _last_runs(connection: Connection, machine_class: str | None = None) -> Sequence[str]:
    """Return the names of the last runs, the newest last."""
    run = schema.run.c
    query = select(run.id)
    if machine_class is not None:
        query = query.where(run.machine_class == machine_class)
    newest_first = query.order_by(run.started.desc(), run.id.desc())
    names = connection.scalars(newest_first.limit(_RUNS)).all()
    return names[::-1]


def _durations_of(connection: Connection, run: str) -> dict[str, float]:
    """Return the seconds of each item in a run, by node id: those of its last line."""
    line = schema.line.c
    query = (
        select(line.nodeid, line.seconds)
        .where(line.run == run, line.seconds.is_not(None))
        .order_by(line.number)
    )
    return {row.nodeid: row.seconds for row in connection.execute(query)}
