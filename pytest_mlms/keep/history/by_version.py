"""Points of series by the version of a package."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from packaging.version import InvalidVersion, Version
from sqlalchemy import Connection, select

from pytest_mlms.core.statistics import student_interval
from pytest_mlms.core.text import close_words
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.queries import PointRow, SeriesInfo, points, versions_of

_SUGGESTED = 5


@dataclass(frozen=True)
class VersionRow:
    """All runs with a version of a package: the mean of their values with Student's interval.

    The replicates are the runs. A single run has the interval of its own point.
    """

    version: str
    runs: int
    first: str
    last: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class VersionSeries:
    """Series that differ in the stack's name at most, a row for each version, the newest last.

    ``unknown`` counts the points whose stack doesn't have the package.
    """

    series: SeriesInfo
    rows: Sequence[VersionRow]
    unknown: int


def by_version(
    connection: Connection, chosen: Iterable[SeriesInfo], package: str
) -> list[VersionSeries]:
    """Return the points of series by the version of a package.

    Raises HistoryError where no stack of the history has it.
    """
    versions = versions_of(connection, package)
    if not versions:
        raise HistoryError(_no_package(connection, package))
    joined: dict[str, list[SeriesInfo]] = {}
    for series in chosen:
        parts = {name: part for name, part in series.parts.items() if name != "stack"}
        joined.setdefault(json.dumps(parts, sort_keys=True), []).append(series)
    found = []
    for group in joined.values():
        of_group: list[PointRow] = []
        for series in group:
            of_group += points(connection, series.id, usable=True)
        found.append(_of_group(group[0], of_group, versions))
    return found


def _of_group(
    series: SeriesInfo, measured: Sequence[PointRow], versions: Mapping[str, str]
) -> VersionSeries:
    of_version: dict[str, list[PointRow]] = {}
    unknown = 0
    for point in measured:
        version = versions.get(point.stack or "")
        if version is None:
            unknown += 1
        else:
            of_version.setdefault(version, []).append(point)
    ordered = sorted(of_version, key=_order)
    return VersionSeries(series, [_row(name, of_version[name]) for name in ordered], unknown)


def _row(version: str, of_version: Sequence[PointRow]) -> VersionRow:
    values = [point.value for point in of_version]
    low, high = of_version[0].low, of_version[0].high
    if len(values) > 1:
        low, high = student_interval(values)
    started = [point.started for point in of_version]
    return VersionRow(
        version=version,
        runs=len({point.run for point in of_version}),
        first=min(started),
        last=max(started),
        value=fmean(values),
        low=low,
        high=None if high is None or math.isinf(high) else high,
    )


def _order(version: str) -> tuple[bool, Version, str]:
    """Return the key of a version; what is no version, such as an image's id, comes first."""
    try:
        return (True, Version(version), version)
    except InvalidVersion:
        return (False, Version("0"), version)


def _no_package(connection: Connection, package: str) -> str:
    known = sorted(connection.scalars(select(schema.package.c.name).distinct()))
    near = close_words(package.lower(), known)
    problem = f"no stack of the history has the package {package!r}"
    if near:
        return f"{problem}; did you mean {near[0]!r}?"
    frameworks = sorted(
        filter(None, connection.scalars(select(schema.stack.c.framework).distinct()))
    )
    shown = ", ".join(frameworks[:_SUGGESTED])
    return f"{problem}; there are {shown or 'none'}, and what these need"
