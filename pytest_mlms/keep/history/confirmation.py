"""Confirmation of suspicions by the gate: both stacks are recreated and measured in turns.

A plan has both sides of a change and what is measured, or the reason why nothing can be.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, select, update

from pytest_mlms.core.child_session import ChildOptions, run_child
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.changes import Change, add_decided, read_changes, set_cause
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.gate_verdict import (
    Circumstances,
    Finding,
    Gate,
    cause_without_software,
    decide,
    gate_of,
)
from pytest_mlms.keep.history.machine_class import machine_class
from pytest_mlms.keep.history.queries import PointRow, points
from pytest_mlms.keep.history.run_lines import check_line
from pytest_mlms.keep.history.store import transact
from pytest_mlms.keep.results.recorded_manifest import case_of_line
from pytest_mlms.keep.results.results_reader import read_results
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.options import share_text
from pytest_mlms.project import project_stacks
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.host.machine import machine_state
from pytest_mlms.provide.stacks.exact import RecordedStack
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.recreation import declared_for_run, make_stack, recreate
from pytest_mlms.provide.stacks.trust import Trust

_QUIET = ("-q", "--no-header", "--tb=no", "-rN")
"""A REGRESSED item is what confirms a suspicion: results have its text, and findings say it."""

_REACH_OF_CONTROL = 2
"""Runs between the change of a control item and another one that it may explain."""

_UNTOLD = (
    "both runs had the same software, and an older pytest-mlms made one of them, which does not "
    "tell whether the case was the same; accept it, or measure that software again"
)

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
    boundaries = []
    for index, side in sides.items():
        before = sides.get(index - 1)
        if before is not None and before.stack.identity != side.stack.identity:
            boundaries.append(index)
    boundary = min(boundaries, key=lambda index: abs(index - located), default=located)
    return sides[boundary - 1], sides[boundary]


def _side(connection: Connection, of_point: PointRow) -> Side:
    line, run = schema.line.c, schema.run.c
    query = (
        select(line.json, run.plugin)
        .join_from(schema.line, schema.run, run.id == line.run)
        .where(line.run == of_point.run, line.number == of_point.number)
    )
    row = connection.execute(query).one()
    try:
        item = check_line(of_point.number, row.json.encode()).fields
    except HistoryError as error:
        where = f"line {of_point.number + 1} of run {of_point.run} in the history"
        raise HistoryError(f"{where}: {error}") from None
    return Side(of_point.run, row.plugin, item, RecordedStack.of(item))


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

    here = machine_class(to_plain(machine_state()), after.line["device"])
    there = change.parts["machine"]
    if here != there:
        problem = f"it was measured on {there}, and this machine is {here}"
        raise _Refused(f"{problem}; confirm it on a machine of that class")
    case = case_of_line(after.line, results)
    gate = gate_of(change, case.loaded.manifest.thresholds.upgrade.tolerances())
    if gate is None:
        raise _Refused(f"upgrades don't compare {change.quantity}")
    return Plan(change, before, after, case, gate, circumstances)


def _step_of_control(history: Engine, connection: Connection, change: Change) -> str:
    """Return the change of a control item on such a machine at the same time; "" for none."""
    runs = [row.run for row in points(connection, change.series, usable=True)]
    if change.first_run not in runs:
        return ""
    located = runs.index(change.first_run)
    begin = max(0, located - _REACH_OF_CONTROL)
    near = runs[begin : located + _REACH_OF_CONTROL + 1]
    for other in read_changes(history):
        same_machine = other.parts.get("machine") == change.parts.get("machine")
        same_direction = other.is_worse == change.is_worse
        if other.control and same_machine and same_direction and other.first_run in near:
            return f"{other.quantity} ×{other.ratio:.3f}, change {other.id}"
    return ""


def confirm(
    history: Engine,
    changes: Sequence[Change],
    options: ChildOptions,
    show: Show,
    trusted: Collection[str] = (),
) -> Iterator[Finding]:
    """Confirm open changes; yield what became of each, once it is written to the history.

    Suspicions that are only named are written where the gate finds a cause. Changes between the
    same two stacks of one manifest share a session of pytest. ``show`` is called with each step.
    ``trusted`` are the names of runs whose stacks are made as they tell.
    """
    plans: dict[tuple[str, str, Path], list[Plan]] = {}
    for change in changes:
        planned = plan_of(history, change, options.results)
        if isinstance(planned, Plan):
            plans.setdefault(planned.group, []).append(planned)
        else:
            _write(history, planned)
            yield planned
    for group in plans.values():
        for finding in _measure(history, group, options, show, trusted):
            _write(history, finding)
            yield finding


def _measure(
    history: Engine,
    plans: Sequence[Plan],
    options: ChildOptions,
    show: Show,
    trusted: Collection[str],
) -> Iterator[Finding]:
    """Yield the findings of plans that share a session; the session runs first."""
    try:
        stacks = _make_stacks(plans[0], options, show, trusted)
        names = StackNames(*stacks)
        with declared_for_run(stacks, options.results) as folder:
            done = run_child(_arguments(plans, names, folder), options, marker=folder)
    except MlmsError as error:
        for plan in plans:
            yield Finding(plan.change, None, str(error))
        return
    if done.run is None:
        for plan in plans:
            reason = f"pytest made no run (exit status {done.status}); its output says why"
            yield Finding(plan.change, None, reason)
        return
    _keep(history, done.run)
    upgrades: dict[str, Mapping[str, Any]] = {}  # the last line of each
    for line in read_results(done.run / "results.jsonl"):
        if line["type"] == "item" and line["kind"] == "upgrade":
            upgrades[line["case"]] = line
    for plan in plans:
        yield _finding(plan, upgrades.get(plan.case(names)), done.run)


def _make_stacks(
    plan: Plan, options: ChildOptions, show: Show, trusted: Collection[str]
) -> dict[str, Stack]:
    """Make both stacks, the one before the change first; return them by name."""
    declared = project_stacks([plan.manifest.path])
    names = StackNames("before", "after")
    number = 1
    while not set(names).isdisjoint(declared):
        number += 1
        names = StackNames(f"before-{number}", f"after-{number}")
    sides = dict(zip(names, (plan.before, plan.after), strict=True))
    driver = machine_state().get("gpu_driver") or ""
    stacks = {}
    for name, side in sides.items():
        trust = Trust(tuple(declared.values()), everything=side.run in trusted)
        stacks[name] = recreate(
            name, side.stack, options.cache, trust, options.env_passthrough, driver
        )
    for name, side in sides.items():
        show(f"{name}: {side.stack.name} of run {side.run}")
        make_stack(stacks[name], side.stack, options.cache, show)
    for difference in plan.before.stack.differences(plan.after.stack):
        show(f"  {difference}")
    return stacks


def _arguments(plans: Sequence[Plan], names: StackNames, folder: str) -> list[str]:
    """Return the arguments of pytest: the items, the stacks, and the gates.

    A gate has the least tolerance that one of the plans asks for.
    """
    items: dict[str, None] = {}
    gates: dict[str, float] = {}
    for plan in plans:
        items[f"{plan.manifest.path}::test_upgrade[{plan.case(names)}]"] = None
        name, tolerance = plan.gate
        if tolerance is not None:
            gates[name] = min(tolerance, gates.get(name, tolerance))
    return [
        *items,
        *_QUIET,
        f"--mlms-manifests={folder}",
        f"--mlms-stack={names.after}",
        f"--mlms-against={names.before}",
        *[f"--mlms-gate={name}={share_text(tolerance)}" for name, tolerance in gates.items()],
    ]


def _keep(history: Engine, run: Path) -> None:
    """Add the gate's run to the history, and name it by a link: later runs don't remove it then."""
    with contextlib.suppress(OSError):  # a file system without links, or one of that name
        os.symlink(run.name, run.parent / f"gate-{run.name}")
    with contextlib.suppress(HistoryError):  # a run without an item
        add_run(history, run)


def _finding(plan: Plan, upgrade: Mapping[str, Any] | None, run: Path) -> Finding:
    if upgrade is None:
        reason = "pytest ran no such item; its output says why"
        return Finding(plan.change, None, reason, run.name)
    finding = decide(plan.change, upgrade, plan.circumstances)
    developed = {*plan.before.stack.developed, *plan.after.stack.developed}
    if finding.cause in (None, "software") or not developed:
        return finding
    names = ", ".join(sorted(developed))
    reason = f"{finding.reason}; but {names} was left out, which was installed from a folder"
    return Finding(plan.change, None, reason, run.name)


def _write(history: Engine, finding: Finding) -> None:
    """Write a finding; of a change that stays open, only the reason, where the history has it."""
    change = finding.change.id
    if not change:
        if finding.cause:
            add_decided(history, finding.change, finding.cause, finding.run, finding.reason)
        return
    if finding.cause:
        set_cause(history, change, finding.cause, finding.run, finding.reason)
        return
    of = schema.change.c
    row = {"confirmed_by": finding.run, "reason": finding.reason}

    def write(connection: Connection) -> None:
        still_open = update(schema.change).where(of.id == change, of.status == "open")
        connection.execute(still_open.values(row))

    transact(history, write)
