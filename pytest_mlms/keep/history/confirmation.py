"""Confirmation of suspicions by the gate: both stacks are recreated and measured in turns."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, update

from pytest_mlms.core.child_session import ChildOptions, run_child
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.changes import Change, add_decided, set_cause
from pytest_mlms.keep.history.confirmation_plan import Plan, StackNames, plan_of
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.gate_verdict import Finding, decide
from pytest_mlms.keep.history.store import transact
from pytest_mlms.keep.results.results_reader import read_results
from pytest_mlms.options import share_text
from pytest_mlms.provide.host.machine import machine_state
from pytest_mlms.provide.stacks.declared import declared_stacks
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.recreation import make_stack, recreate, write_stacks
from pytest_mlms.provide.stacks.trust import Trust

_QUIET = ("-q", "--no-header", "--tb=no", "-rN")
"""A REGRESSED item is what confirms a suspicion: results have its text, and findings say it."""


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
    with tempfile.TemporaryDirectory(prefix="mlms-confirm-") as folder:
        try:
            names = _make_stacks(Path(folder), plans[0], options, show, trusted)
        except MlmsError as error:
            for plan in plans:
                yield Finding(plan.change, None, str(error))
            return
        arguments = _arguments(plans, names, folder)
        done = run_child(arguments, options, marker=folder)
    if done.run is None:
        for plan in plans:
            reason = f"pytest made no run (exit status {done.status}); its output says why"
            yield Finding(plan.change, None, reason)
        return
    _keep(history, done.run)
    upgrades = _upgrades(done.run)
    for plan in plans:
        yield _finding(plan, upgrades.get(plan.case(names)), done.run)


def _make_stacks(
    folder: Path, plan: Plan, options: ChildOptions, show: Show, trusted: Collection[str]
) -> StackNames:
    """Declare both stacks in ``folder`` and make them; return their names."""
    declared = declared_stacks(Path.cwd(), [plan.manifest.path.absolute()])
    names = _free_names(declared)
    sides = dict(zip(names, (plan.before, plan.after), strict=True))
    driver = machine_state().get("gpu_driver") or ""
    stacks = {}
    for name, side in sides.items():
        trust = Trust(tuple(declared.values()), everything=side.run in trusted)
        stacks[name] = recreate(
            name, side.stack, options.cache, trust, options.env_passthrough, driver
        )
    write_stacks(folder / "stacks.yaml", stacks)
    for name, side in sides.items():
        show(f"{name}: {side.stack.name} of run {side.run}")
        make_stack(stacks[name], side.stack, options.cache, show)
    for difference in plan.before.stack.differences(plan.after.stack):
        show(f"  {difference}")
    return names


def _free_names(declared: Collection[str]) -> StackNames:
    number = 1
    names = StackNames("before", "after")
    while not set(names).isdisjoint(declared):
        number += 1
        names = StackNames(f"before-{number}", f"after-{number}")
    return names


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


def _upgrades(run: Path) -> dict[str, Mapping[str, Any]]:
    """Return the last line of each upgrade of a run, by its case."""
    upgrades: dict[str, Mapping[str, Any]] = {}
    for line in read_results(run / "results.jsonl"):
        if line["type"] == "item" and line["kind"] == "upgrade":
            upgrades[line["case"]] = line
    return upgrades


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
