"""Points of many series, read series by series."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, Select, select

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.records import UNUSABLE
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.errors import damaged

_ROWS = ("series", "places of runs", "numbers of lines", "values", "numbers of stacks")
_AT_ONCE = 5_000  # points that a driver returns
_IN_MEMORY = 5_000_000  # points, of 40 bytes
_FEW = 100  # series that are read one by one
_UNKNOWN = -1


@dataclass(frozen=True)
class SeriesPoints:
    """The points of a series, by its id, in order: one of each run, which is named.

    ``changed`` are the places of points whose stack is known to be another one than that before.
    """

    series: int
    runs: Sequence[str]
    values: NDArray[np.float64]
    changed: NDArray[np.int64]


def read_series(connection: Connection, wanted: Collection[int]) -> Iterator[SeriesPoints]:
    """Yield the usable points of the wanted series; of several in one run the last counts.

    Points are in the order in which runs began, and by the names of those that began at once. Some
    million points are read at a time, in the order of the table, which is several times as fast as
    to read one series after the other.
    """
    run = schema.run.c
    query = select(run.id).order_by(run.started, run.id)
    runs = connection.scalars(query).all()
    ordered = sorted(wanted)
    points_of_series = max(1, len(runs))
    size = max(1, _IN_MEMORY // points_of_series)
    for begin in range(0, len(ordered), size):
        some = ordered[begin : begin + size]
        columns = _columns(connection, some, runs)
        last = _last_of_each_run(columns)
        yield from _by_series(last, runs)


def _columns(connection: Connection, some: Sequence[int], runs: Sequence[str]) -> Array:
    """Return the points of series, a column each, in rows as ``_ROWS`` says."""
    places = {run: place for place, run in enumerate(runs)}
    stacks: dict[str | None, int] = {None: _UNKNOWN}
    parts = [np.empty((len(_ROWS), 0))]
    result = connection.execute(_query(some), execution_options={"yield_per": _AT_ONCE})
    for points in result.partitions():
        part = _part(points, places, stacks)
        parts.append(part)
    columns = np.concatenate(parts, axis=1)
    series, of_runs, *_ = columns
    is_wanted = np.isin(series, some)
    is_known = of_runs != _UNKNOWN  # others were added meanwhile, and are read the next time
    return columns[:, is_wanted & is_known]


def _part(
    points: Sequence[Row[Any]], places: Mapping[str, int], stacks: dict[str | None, int]
) -> Array:
    series, names, numbers, values, digests = zip(*points, strict=True)
    of_stacks = [stacks.setdefault(digest, len(stacks)) for digest in digests]
    of_runs = [places.get(name, _UNKNOWN) for name in names]
    try:
        part = np.array([series, of_runs, numbers, values, of_stacks], float)
    except (TypeError, ValueError):
        part = np.array(np.nan)
    if not np.isfinite(part).all():
        raise damaged("a point's value is no number")
    return part


def _query(some: Sequence[int]) -> Select[Any]:
    point = schema.point.c
    columns = (point.series, point.run, point.number, point.value, point.stack)
    usable = point.verdict.not_in(UNUSABLE)
    query = select(*columns).where(usable)
    if len(some) <= _FEW:
        return query.where(point.series.in_(some))
    without_index = point.series + 0  # the database would use the index row by row
    first = some[0]
    last = some[-1]
    return query.where(without_index.between(first, last))


def _last_of_each_run(columns: Array) -> Array:
    """Return columns by series, run and number; the last of those of the same series and run."""
    series, runs, numbers, *_ = columns
    order = np.lexsort((numbers, runs, series))
    in_order = columns[:, order]
    series_and_runs = in_order[:2]
    is_last = np.ones(len(order), bool)
    is_last[:-1] = np.diff(series_and_runs, axis=1).any(axis=0)
    return np.asarray(in_order[:, is_last])


def _by_series(columns: Array, runs: Sequence[str]) -> Iterator[SeriesPoints]:
    series, places, _, values, stacks = columns
    is_first = np.diff(series, prepend=np.nan) != 0
    begins = np.flatnonzero(is_first)
    bounds = [*begins, len(series)]
    for begin, end in itertools.pairwise(bounds):
        number = int(series[begin])
        of_runs = places[begin:end].astype(int)
        names = [runs[place] for place in of_runs]
        changed = _changed(stacks[begin:end])
        yield SeriesPoints(number, names, values[begin:end], changed)


def _changed(stacks: Array) -> NDArray[np.int64]:
    """Return the places of stacks that are known to be others than those before."""
    before, after = stacks[:-1], stacks[1:]
    is_other = (before != after) & (before != _UNKNOWN) & (after != _UNKNOWN)
    return np.flatnonzero(is_other) + 1
