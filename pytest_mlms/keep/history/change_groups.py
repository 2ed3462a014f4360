"""Changes that began at the same run on the same class of machine, and other changes there."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select

from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.changes import Change
from pytest_mlms.keep.history.queries import (
    PointRow,
    StackInfo,
    changes_between,
    points,
    points_around,
    stacks,
)
from pytest_mlms.keep.history.stacks import canonical_name

NEAR = 2
"""Runs that the places of changes with one cause may be apart: places are estimates."""

_UNKNOWN = -1  # place of a run that is gone


_BESIDE = 10
"""Points that are read up to a change: several runs may have started at the time of its first."""


@dataclass(frozen=True)
class Difference:
    """A fact that differs between the runs before and after; None where a side lacks it."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class ChangeGroup:
    """Changes of one time on one class of machines, the largest first.

    ``last_run`` is the last run before the first of them, or None where it isn't known.
    ``differences`` are those between the points before and after: packages, the commit, the host.
    """

    machine: str
    first_run: str
    started: str
    last_run: str | None
    changes: Sequence[Change]
    differences: Sequence[Difference]


def group_changes(history: Engine, changes: Sequence[Change]) -> list[ChangeGroup]:
    """Return changes in groups, the oldest first."""
    groups = []
    by_machine = _by_machine(changes)
    with history.connect() as connection:
        for machine, of_machine in by_machine.items():
            places = _places_of_runs(connection, machine)
            for near in _near(of_machine, places):
                group = _group(connection, machine, near)
                groups.append(group)
    return sorted(groups, key=lambda group: group.started)


def _by_machine(changes: Iterable[Change]) -> dict[str, list[Change]]:
    by_machine: dict[str, list[Change]] = {}
    for change in changes:
        machine = change.parts["machine"]
        of_machine = by_machine.setdefault(machine, [])
        of_machine.append(change)
    return by_machine


def _places_of_runs(connection: Connection, machine: str) -> dict[str, int]:
    """Return the runs with points on this class of machine, numbered in order."""
    run = schema.run.c
    query = select(run.id).where(run.machine_class == machine)
    names = connection.scalars(query.order_by(run.started, run.id))
    return {name: place for place, name in enumerate(names)}


def _near(changes: Sequence[Change], places: Mapping[str, int]) -> list[list[Change]]:
    """Return changes in groups whose first runs are near each other."""
    groups: list[list[Change]] = []
    begin = ""
    end = _UNKNOWN
    for change in sorted(changes, key=lambda change: (change.started, change.first_run)):
        place = places.get(change.first_run, _UNKNOWN)
        is_near = _UNKNOWN < place <= end
        if change.first_run == begin or is_near:
            groups[-1].append(change)
            continue
        groups.append([change])
        begin = change.first_run
        end = place + NEAR
    return groups


def _group(connection: Connection, machine: str, changes: Sequence[Change]) -> ChangeGroup:
    """Return the group of changes; it is dated by most of them."""
    runs = Counter(sorted(change.first_run for change in changes))
    [(first_run, _)] = runs.most_common(1)
    typical = next(change for change in changes if change.first_run == first_run)
    sides = points_beside(connection, typical.series, first_run, typical.started)
    ordered = sorted(changes, key=lambda change: max(change.ratio, 1 / change.ratio), reverse=True)
    return ChangeGroup(
        machine=machine,
        first_run=first_run,
        started=typical.started,
        last_run=sides[0].run if sides else None,
        changes=ordered,
        differences=differences_between(connection, *sides) if sides else [],
    )


def points_beside(
    connection: Connection, series: int, first_run: str, started: str
) -> tuple[PointRow, PointRow] | None:
    """Return the points before and after a change by its first run and when that started.

    None where one is gone.
    """
    near = points(connection, series, last=_BESIDE, usable=True, until=started)
    for before, after in itertools.pairwise(near):
        if after.run == first_run:
            return before, after
    return None


def came_near(connection: Connection, series: int, started: str) -> set[tuple[str, str]] | None:
    """Return the packages with their versions that a series has since near the time of a change.

    Near are some runs before and after it. None where that is not known: a side is gone, or has no
    record of its software.
    """
    around = points_around(connection, series, started, NEAR)
    known = stacks(connection, [point.stack for point in around])
    found = [known.get(point.stack or "") for point in around]
    software = [stack for stack in found if stack and _names_its_framework(stack)]
    if len(software) < max(len(around), 2):
        return None
    versions = [set(stack.packages.items()) for stack in software]
    return set[tuple[str, str]]().union(*versions[1:]) - versions[0]


def _names_its_framework(stack: StackInfo) -> bool:
    return canonical_name(stack.framework or "") in stack.packages


def differences_between(
    connection: Connection, before: PointRow, after: PointRow
) -> list[Difference]:
    """Return the differences that may have changed the value: software, then commit and host."""
    known = stacks(connection, [before.stack, after.stack])
    old = known.get(before.stack or "")
    new = known.get(after.stack or "")
    differences = []
    if old and new:
        for package in changes_between(old, new):
            differences.append(Difference(package.name, package.before, package.after))
        if not differences and before.stack != after.stack:
            differences.append(Difference("a package's address", "one", "another"))
    others = [
        Difference("pytest-mlms", before.plugin, after.plugin),
        Difference("git", _commit(before), _commit(after)),
        Difference("host", before.host, after.host),
    ]
    for other in others:
        if other.before != other.after:
            differences.append(other)
    return differences


def _commit(point: PointRow) -> str | None:
    """Return the commit of a point's run; with a star where files were changed, as in tables."""
    return f"{point.git_sha}*" if point.dirty else point.git_sha
