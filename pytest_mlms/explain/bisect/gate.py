"""The upgrade gate between two stacks, run by pytest in a process of its own."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_mlms.core.child_session import ChildOptions, run_child
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.judgement import AGREEMENT, CRASH
from pytest_mlms.explain.bisect.question import Point, model_of
from pytest_mlms.keep.results.results_reader import read_results
from pytest_mlms.options import share_text
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.launch import prepare
from pytest_mlms.provide.stacks.recreation import declared_for_run

_Line = Mapping[str, Any]
_QUIET = ("-q", "--no-header", "--tb=short", "-rN", "-p", "no:cacheprovider")
_SHOWN_LINES = 12
_LARGEST_TOLERANCE = 1.0
"""Of latency where another quantity is asked for: it then ends no later than that one."""


@dataclass(frozen=True)
class GateRun:
    """The line of an upgrade in results.jsonl, and the name of its run."""

    line: _Line
    run: str


@dataclass(frozen=True)
class Gate:
    """Runs upgrades of one point of a manifest.

    Attributes:
        point: What is measured.
        child: The options of the sessions.
        seconds: The budget of an upgrade, and the least timed seconds of a process.
        tolerance: How much worse a quantity may be; None for the manifest's or the default.
        tell_step: Called with each step of an installation.
    """

    point: Point
    child: ChildOptions
    seconds: tuple[float, float]
    tolerance: float | None
    tell_step: Show
    _locks: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def show(self, step: str) -> None:
        """Tell a step."""
        self.tell_step(step)

    def install(self, stack: Stack) -> tuple[str, ...]:
        """Make the environment of a stack, once; return its exact packages.

        Raises MlmsError where it can't be made.
        """
        name = stack.name
        if name not in self._locks:
            launch = prepare(stack, self.child.cache, show=self.tell_step)
            self._locks[name] = launch.lock
        return self._locks[name]

    def run(self, before: Stack, after: Stack, quantity: str | None, effort: int) -> GateRun:
        """Judge a stack against an earlier one; both must be installed.

        Raises MlmsError, which has pytest's last lines, where it measured nothing.
        """
        variant = model_of(self.point, after.framework).variant or ""
        before, after = replace(before, variant=variant), replace(after, variant=variant)
        stacks = {before.name: before, after.name: after}
        with (
            declared_for_run(stacks, self.child.results) as folder,
            tempfile.TemporaryFile(prefix="mlms-bisect-") as output,
        ):
            arguments = list(self._arguments(before, after, folder))
            arguments += self._limits(quantity, effort)
            done = run_child(arguments, self.child, marker=folder, output=output)
            output.seek(0)
            text = output.read().decode(errors="replace")
        run = done.run
        line = _upgrade(run) if run else None
        if run is None or line is None:
            lines = text.splitlines()
            shown = "\n  ".join(lines[-_SHOWN_LINES:])
            raise MlmsError(f"pytest judged nothing (exit status {done.status}):\n  {shown}")
        _keep(run)
        return GateRun(line, run.name)

    def _arguments(self, before: Stack, after: Stack, folder: str) -> Iterator[str]:
        point = self.point
        case = f"{after.label}-vs-{before.label}-{point.case}"
        yield f"{point.path}::test_upgrade[{case}]"
        yield from _QUIET
        yield f"--mlms-manifests={folder}"
        yield f"--mlms-stack={after.name}"
        yield f"--mlms-against={before.name}"

    def _limits(self, quantity: str | None, effort: int) -> Iterator[str]:
        """Yield the budget, and the gates: the quantity with its tolerance."""
        budget, duration = self.seconds
        whole = effort * budget
        process = effort * duration
        yield f"--mlms-budget={whole:g}"
        yield f"--mlms-duration={process:g}"
        if quantity is None:
            return
        if quantity not in (AGREEMENT, CRASH):
            tolerance = self._tolerance_of(quantity)
            yield f"--mlms-gate={quantity}={share_text(tolerance)}"
        if quantity != "latency":
            yield f"--mlms-gate=latency={share_text(_LARGEST_TOLERANCE)}"

    def _tolerance_of(self, quantity: str) -> float:
        """Return the tolerance that was asked for, else the manifest's, else the default."""
        if self.tolerance is not None:
            return self.tolerance
        rules = upgrade_rules(None)
        thresholds = self.point.loaded.manifest.thresholds
        default = rules[quantity].tolerance
        return thresholds.upgrade.tolerances().get(quantity, default)


def check_quantity(name: str | None, tolerance: float | None, point: Point) -> None:
    """Raise MlmsError where upgrades of a point don't compare a quantity, or by no tolerance."""
    if name is None:
        if tolerance is not None:
            raise MlmsError("--tolerance is of one quantity; name it with --quantity")
        return
    known = ["latency", AGREEMENT, CRASH, *upgrade_rules(None)]
    if name not in known:
        names = ", ".join(dict.fromkeys(known))
        raise MlmsError(f"--quantity {name!r} is none that upgrades compare; write one of {names}")
    if point.scenario is None and name in QUANTITIES and QUANTITIES[name].under_load:
        problem = f"--quantity {name} is of queries under load, and {point.case} has no load"
        raise MlmsError(f"{problem}; write {point.path}::test_upgrade[{point.case}-SCENARIO]")
    if tolerance is not None and name in (AGREEMENT, CRASH):
        problem = f"{name} has no tolerance to set"
        raise MlmsError(f"{problem}; that of outputs is the manifest's thresholds: agreement")


def _upgrade(run: Path) -> _Line | None:
    """Return the last line of an upgrade; None where there is none."""
    found = None
    for line in read_results(run / "results.jsonl"):
        is_item = line["type"] == "item"
        if is_item and line["kind"] == "upgrade":
            found = line
    return found


def _keep(run: Path) -> None:
    """Name a run by a link: later runs don't remove it then."""
    with contextlib.suppress(OSError):  # a file system without links, or one of that name
        os.symlink(run.name, run.parent / f"bisect-{run.name}")
