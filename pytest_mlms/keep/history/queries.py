"""Read-only queries of a history, as records that views, tables and pages are made of.

All of them take a connection, as of ``open_to_read(address).connect()``. Points are in the order in
which their runs began.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select

from pytest_mlms.core.records import UNUSABLE
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.errors import damaged
from pytest_mlms.keep.history.series import case_label
from pytest_mlms.keep.history.stacks import canonical_name

_AT_ONCE = 500  # parameters of a statement; SQLite before 3.32 takes 999


@dataclass(frozen=True)
class SeriesInfo:
    """A series; ``parts`` are what its points have in common."""

    id: int
    key: str
    parts: Mapping[str, Any]
    quantity: str
    unit: str
    better: str
    control: bool

    @property
    def model(self) -> str:
        """The name of the manifest."""
        return str(self.parts["manifest"])

    @property
    def kind(self) -> str:
        """The kind of item."""
        return str(self.parts["kind"])

    @property
    def case(self) -> str:
        """The case, much like an item's id: onnxruntime-cpu-b8-offline."""
        return case_label(self.parts)

    @property
    def machine(self) -> str:
        """The class of machine."""
        return str(self.parts["machine"])


@dataclass(frozen=True)
class PointRow:
    """A point, and its run; ``stack`` is the digest of its software.

    ``number`` is that of the item's line in the run. Values are in the unit of the series.
    """

    series: int
    run: str
    number: int
    started: str
    value: float
    low: float | None
    high: float | None
    replicates: int | None
    verdict: str
    stack: str | None
    host: str | None
    machine_class: str | None
    plugin: str | None
    git_sha: str | None
    dirty: bool | None
    branch: str | None
    ci_url: str | None


@dataclass(frozen=True)
class RunInfo:
    """A run; ``exit_status`` is None for one that was killed or still goes on."""

    id: str
    started: str
    host: str | None
    machine_class: str | None
    plugin: str | None
    git_sha: str | None
    dirty: bool | None
    branch: str | None
    ci_url: str | None
    exit_status: int | None


@dataclass(frozen=True)
class HostInfo:
    """A host on which runs began, with its class of machine: their number, and the last."""

    host: str | None
    machine_class: str | None
    runs: int
    last: str


@dataclass(frozen=True)
class StackInfo:
    """Software that measured points; ``packages`` are versions by normalised name."""

    lock_sha256: str
    framework: str | None
    python: str | None
    driver: str | None
    packages: Mapping[str, str]


@dataclass(frozen=True)
class PackageChange:
    """A package, Python or the driver whose version differs; None where it isn't there."""

    name: str
    before: str | None
    after: str | None


def series_names(connection: Connection, quantity: str = "") -> dict[int, str]:
    """Return the id and the name of each series, of one quantity if it is given."""
    query = select(schema.series.c.id, schema.series.c.name).order_by(schema.series.c.name)
    if quantity:
        query = query.where(schema.series.c.quantity == quantity)
    return {row.id: row.name for row in connection.execute(query)}


def series_by_id(connection: Connection, ids: Iterable[int]) -> list[SeriesInfo]:
    """Return the series of these ids, in this order; those that there aren't are left out."""
    found: dict[int, SeriesInfo] = {}
    wanted = list(ids)
    columns = schema.series.c
    for part in _in_parts(wanted):
        query = select(
            columns.id,
            columns.key,
            columns.parts,
            columns.quantity,
            columns.unit,
            columns.better,
            columns.control,
        ).where(columns.id.in_(part))
        for row in connection.execute(query):
            found[row.id] = SeriesInfo(**row._mapping)
    return [found[number] for number in wanted if number in found]


def series_ids(connection: Connection, keys: Iterable[str]) -> dict[str, int]:
    """Return the ids of the series with these keys, by key."""
    columns = schema.series.c
    found: dict[str, int] = {}
    for part in _in_parts(list(dict.fromkeys(keys))):
        query = select(columns.key, columns.id).where(columns.key.in_(part))
        found.update({row.key: row.id for row in connection.execute(query)})
    return found


def points(
    connection: Connection,
    series: int,
    last: int | None = None,
    usable: bool = False,
    until: str | None = None,
) -> list[PointRow]:
    """Return the points of a series, the newest last; ``last`` keeps that many of the newest.

    ``until`` leaves out those of runs that started after this time. The ``usable`` ones are what
    changes are searched in: of items whose values say something, and the last of each run.
    """
    order = (schema.point.c.started, schema.point.c.run, schema.point.c.number)
    query = _select_points().where(schema.point.c.series == series)
    if usable:
        query = query.where(_is_usable())
    if until is not None:
        query = query.where(schema.point.c.started <= until)
    if last is None:
        return [_point(row) for row in connection.execute(query.order_by(*order))]
    newest = query.order_by(*(column.desc() for column in order)).limit(last)
    rows = [_point(row) for row in connection.execute(newest)]
    return rows[::-1]


def points_around(connection: Connection, series: int, started: str, beside: int) -> list[PointRow]:
    """Return the usable points of a series around a time, the newest last.

    They are those of the runs that started then, of ``beside`` runs after and of one more before.
    """
    point = schema.point.c
    order = (point.started, point.run, point.number)
    query = _select_points().where(point.series == series).where(_is_usable())
    before = query.where(point.started < started).order_by(*(each.desc() for each in order))
    since = query.where(point.started >= started).order_by(*order)
    earlier = [_point(row) for row in connection.execute(before.limit(beside + 1))]
    later = [_point(row) for row in connection.execute(since.limit(beside + 1))]
    return [*earlier[::-1], *later]


def last_points(
    connection: Connection, series: Iterable[int], last: int, usable: bool = False
) -> dict[int, list[PointRow]]:
    """Return the newest points of several series by their ids."""
    return {number: points(connection, number, last, usable) for number in series}


def point_counts(connection: Connection, series: Iterable[int]) -> dict[int, int]:
    """Return the number of points of each of these series, by their ids."""
    wanted = list(series)
    counts = dict.fromkeys(wanted, 0)
    column = schema.point.c.series
    for part in _in_parts(wanted):
        query = select(column, func.count()).where(column.in_(part)).group_by(column)
        for number, count in connection.execute(query):
            counts[number] = count
    return counts


def runs(connection: Connection, last: int | None = None) -> list[RunInfo]:
    """Return the runs, the newest last; ``last`` keeps that many of the newest."""
    query = select(schema.run).order_by(schema.run.c.started.desc(), schema.run.c.id.desc())
    if last is not None:
        query = query.limit(last)
    rows = connection.execute(query).all()
    names = RunInfo.__dataclass_fields__
    return [RunInfo(**{name: row._mapping[name] for name in names}) for row in reversed(rows)]


def hosts(connection: Connection) -> list[HostInfo]:
    """Return the hosts of the first items of all runs, with their classes, sorted by name."""
    columns = (schema.run.c.host, schema.run.c.machine_class)
    query = (
        select(*columns, func.count(), func.max(schema.run.c.started))
        .group_by(*columns)
        .order_by(*columns)
    )
    return [HostInfo(*row) for row in connection.execute(query)]


def stacks(connection: Connection, digests: Iterable[str | None]) -> dict[str, StackInfo]:
    """Return stacks with all of their packages, by digest."""
    wanted = sorted({digest for digest in digests if digest is not None})
    packages: dict[str, dict[str, str]] = {digest: {} for digest in wanted}
    found = {}
    for part in _in_parts(wanted):
        query = select(schema.package).where(schema.package.c.lock_sha256.in_(part))
        for row in connection.execute(query):
            packages[row.lock_sha256][row.name] = row.version
        of_stacks = select(schema.stack).where(schema.stack.c.lock_sha256.in_(part))
        for row in connection.execute(of_stacks):
            found[row.lock_sha256] = StackInfo(
                lock_sha256=row.lock_sha256,
                framework=row.framework,
                python=row.python,
                driver=row.driver,
                packages=packages[row.lock_sha256],
            )
    return found


def changes_between(before: StackInfo, after: StackInfo) -> list[PackageChange]:
    """Return what differs between two stacks, the framework first, and the rest by name."""
    old = _versions(before)
    new = _versions(after)
    first = canonical_name(after.framework or "")
    names = sorted(old.keys() | new.keys(), key=lambda name: (name != first, name))
    changes = []
    for name in names:
        if old.get(name) != new.get(name):
            changes.append(PackageChange(name, old.get(name), new.get(name)))
    return changes


def versions_of(connection: Connection, package: str) -> dict[str, str]:
    """Return the version of a package in each stack that has it, by the stack's digest.

    "python" and "driver" are versions, too. Names are compared as PEP 503 says.
    """
    name = canonical_name(package)
    if name in ("python", "driver"):
        column = schema.stack.c[name]
        query: Select[Any] = select(schema.stack.c.lock_sha256, column).where(column.is_not(None))
    else:
        of_package = schema.package.c
        query = select(of_package.lock_sha256, of_package.version).where(of_package.name == name)
    return {row[0]: row[1] for row in connection.execute(query)}


def _versions(stack: StackInfo) -> dict[str, str]:
    versions = dict(stack.packages)
    if stack.python:
        versions["python"] = stack.python
    if stack.driver:
        versions["driver"] = stack.driver
    return versions


def _select_points() -> Select[Any]:
    point = schema.point.c
    run = schema.run.c
    return select(
        point.series,
        point.run,
        point.number,
        point.started,
        point.value,
        point.low,
        point.high,
        point.replicates,
        point.verdict,
        point.stack,
        point.host,
        run.machine_class,
        run.plugin,
        run.git_sha,
        run.dirty,
        run.branch,
        run.ci_url,
    ).join_from(schema.point, schema.run, run.id == point.run)


def _is_usable() -> ColumnElement[bool]:
    """Return whether a point is the last usable one of its series and run."""
    point = schema.point.c
    other = schema.point.alias().c
    newest = (
        select(func.max(other.number))
        .where(other.series == point.series, other.started == point.started)
        .where(other.run == point.run, other.verdict.not_in(UNUSABLE))
        .scalar_subquery()
    )
    return point.number == newest


def _point(row: Row[Any]) -> PointRow:
    for value in (row.value, row.low, row.high):
        if value is not None and not (isinstance(value, float) and math.isfinite(value)):
            raise damaged(f"a value of run {row.run} is no number")
    return PointRow(**row._mapping)


def _in_parts(values: Sequence[Any]) -> Iterable[Collection[Any]]:
    """Yield the values in parts that fit into a statement."""
    remaining = iter(values)
    while part := list(islice(remaining, _AT_ONCE)):
        yield part
