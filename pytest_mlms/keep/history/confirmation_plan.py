"""Plans of confirmations: both sides of a change, and what is measured, or why nothing can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, select

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.history.changes import Change, read_changes
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.gate_verdict import (
    Circumstances,
    Finding,
    Gate,
    cause_without_software,
    gate_of,
)
from pytest_mlms.keep.history.machine_class import machine_class
from pytest_mlms.keep.history.queries import PointRow, points
from pytest_mlms.keep.history.run_lines import check_line
from pytest_mlms.keep.history.schema import line, run
from pytest_mlms.keep.results.recorded_manifest import case_of_line
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.host.machine import machine_state
from pytest_mlms.provide.stacks.exact import RecordedStack

_REACH = 3
"""Runs before and after the one where a change was located: it may be a few runs off."""


@dataclass(frozen=True)
class Side:
    """A run on one side of a change: its item's line, and the version of this plugin."""

    run: str
    plugin: str | None
    line: Mapping[str, Any]
    stack: RecordedStack

    @property
    def tells_all(self) -> bool:
        """True if its line has all that may change a value: those of older versions don't."""
        return bool(self.line.get("definition")) and self.stack.inherited is not None


def sides_of(connection: Connection, change: Change) -> tuple[Side, Side] | None:
    """Return the last run before a change and its first run; None where a point is gone.

    The change of software that is nearest to where the change was located separates them; without
    one, the two runs are those beside that place.
    """
    found = points(connection, change.series, usable=True)
    runs = [row.run for row in found]
    if change.first_run not in runs[1:]:
        return None
    located = runs.index(change.first_run)
    begin = max(0, located - _REACH)
    sides = {}
    near = found[begin : located + _REACH]
    for index, of_point in enumerate(near, start=begin):
        sides[index] = _side(connection, of_point)
    boundary = _nearest_boundary(sides, located)
    return sides[boundary - 1], sides[boundary]


def _nearest_boundary(sides: Mapping[int, Side], located: int) -> int:
    """Return the index of the first side with other software than the one before."""
    boundaries = []
    for index, side in sides.items():
        before = sides.get(index - 1)
        if before is not None and before.stack.identity != side.stack.identity:
            boundaries.append(index)
    return min(boundaries, key=lambda index: abs(index - located), default=located)


def _side(connection: Connection, of_point: PointRow) -> Side:
    query = (
        select(line.c.json, run.c.plugin)
        .join(run, run.c.id == line.c.run)
        .where(line.c.run == of_point.run, line.c.number == of_point.number)
    )
    row = connection.execute(query).one()
    try:
        item = check_line(of_point.number, row.json.encode()).fields
    except HistoryError as error:
        where = f"line {of_point.number + 1} of run {of_point.run} in the history"
        raise HistoryError(f"{where}: {error}") from None
    return Side(of_point.run, row.plugin, item, RecordedStack.of(item))


_REACH_OF_CONTROL = 2
"""Runs between the change of a control item and another one that it may explain."""


_UNTOLD = (
    "both runs had the same software, and an older pytest-mlms made one of them, which does not "
    "tell whether the case was the same; accept it, or measure that software again"
)


class _Refused(MlmsError):
    """A change can't be confirmed; the text says why."""


class StackNames(NamedTuple):
    """Names of both stacks that no declared stack has."""

    before: str
    after: str


@dataclass(frozen=True)
class Plan:
    """A change with both sides of it, the measured case, and what the upgrade has to decide."""

    change: Change
    before: Side
    after: Side
    measured: Case
    gate: Gate
    circumstances: Circumstances

    @property
    def manifest(self) -> LoadedManifest:
        """The manifest of the case."""
        return self.measured.loaded

    @property
    def group(self) -> tuple[str, str, Path]:
        """The properties that plans have in common which share a session of pytest."""
        return self.before.stack.identity, self.after.stack.identity, self.manifest.path

    def case(self, names: StackNames) -> str:
        """Return the id of the upgrade's case: under the load where it was measured under one."""
        case = self.measured
        upgrade = replace(
            case,
            kind="upgrade",
            stack=replace(case.stack, name=names.after),
            against=replace(case.stack, name=names.before),
            scenario=case.scenario if case.load else None,
        )
        return upgrade.id


def plan_of(history: Engine, change: Change, results: Path) -> Plan | Finding:
    """Return how to confirm a change, or what is known of it without measuring.

    ``results`` is the folder of runs, where no manifest of the operator is.
    """
    try:
        with history.connect() as connection:
            sides = sides_of(connection, change)
            control = _step_of_control(history, connection, change)
        if sides is None:
            raise _Refused("the runs on both sides of it are not in the history")
        return _plan(change, *sides, control, results)
    except MlmsError as error:
        return Finding(change, None, str(error))


def _plan(change: Change, before: Side, after: Side, control: str, results: Path) -> Plan | Finding:
    plugin = ""
    if before.plugin != after.plugin:
        plugin = f"{before.plugin} → {after.plugin}"
    circumstances = Circumstances(plugin, control)
    if before.stack.identity == after.stack.identity and not before.stack.missing:
        cause, why = cause_without_software(circumstances)
        if cause == "noise" and not (before.tells_all and after.tells_all):
            raise _Refused(_UNTOLD)
        return Finding(change, cause, f"both runs had the same software; {why}")
    if "::" in change.parts["test"]:
        raise _Refused("it was measured by a test of your own, which upgrades don't run")
    _check_machine(change, after.line["device"])
    case = case_of_line(after.line, results)
    gate = gate_of(change, case.loaded.manifest.thresholds.upgrade.tolerances())
    if gate is None:
        raise _Refused(f"upgrades don't compare {change.quantity}")
    return Plan(change, before, after, case, gate, circumstances)


def _step_of_control(history: Engine, connection: Connection, change: Change) -> str:
    """Return the change of a control item on such a machine at the same time; "" for none."""
    near = _runs_near(connection, change)
    for other in read_changes(history):
        same_machine = other.parts.get("machine") == change.parts.get("machine")
        same_direction = other.is_worse == change.is_worse
        if other.control and same_machine and same_direction and other.first_run in near:
            return f"{other.quantity} ×{other.ratio:.3f}, change {other.id}"
    return ""


def _runs_near(connection: Connection, change: Change) -> set[str]:
    """Return the runs of a series beside the first run of a change."""
    runs = [row.run for row in points(connection, change.series, usable=True)]
    if change.first_run not in runs:
        return set()
    located = runs.index(change.first_run)
    begin = max(0, located - _REACH_OF_CONTROL)
    return set(runs[begin : located + _REACH_OF_CONTROL + 1])


def _check_machine(change: Change, device: str) -> None:
    here = machine_class(to_plain(machine_state()), device)
    there = change.parts["machine"]
    if here != there:
        problem = f"it was measured on {there}, and this machine is {here}"
        raise _Refused(f"{problem}; confirm it on a machine of that class")
