"""Releases of a package that were never measured, measured each in a stack of its own."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from pytest_mlms.author.loading import load_manifest
from pytest_mlms.core.child_session import ChildOptions, run_child
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import UNUSABLE, Kind, Stack
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.starts import module_command
from pytest_mlms.keep.history import schema
from pytest_mlms.keep.history.queries import series_by_id, series_names
from pytest_mlms.keep.history.series import parts_of
from pytest_mlms.keep.history.stacks import canonical_name
from pytest_mlms.keep.results.item_result import identity_of
from pytest_mlms.keep.results.results_reader import ItemLines, read_results
from pytest_mlms.manifest.load import find_manifests
from pytest_mlms.provide.cases import StacksOf, cases_of
from pytest_mlms.provide.host.machine import machine_state
from pytest_mlms.provide.stacks.declared import framework_of
from pytest_mlms.provide.stacks.index import Release
from pytest_mlms.provide.stacks.installers import Show
from pytest_mlms.provide.stacks.launch import prepare
from pytest_mlms.provide.stacks.recreation import declared_for_run, write_stacks
from pytest_mlms.provide.stacks.schema import STACK_FILES

_KINDS: tuple[Kind, ...] = ("performance", "accuracy", "agreement")
_OF_RELEASES = ("stack", "reference", "quantity")
_QUIET = ("-q", "--no-header", "--tb=line", "-rN")
_NOTHING_COLLECTED = 5
_SHOWN_LINES = 12


@dataclass(frozen=True)
class BackfillOptions:
    """Measurements of each release, and their place.

    ``more`` are requirements that each stack has beside the release and numpy.
    """

    child: ChildOptions
    manifests: tuple[Path, ...]
    expression: str
    more: tuple[str, ...]
    history: str

    @property
    def child_to_add(self) -> ChildOptions:
        """The options of a child that adds its run to the history.

        The address is in the environment, not in the command: it may have a password.
        """
        return replace(self.child, variables={"MLMS_HISTORY": self.history})

    def stack_of(self, release: Release) -> Stack:
        """Return the stack of a release."""
        framework = framework_of(release.package)
        names = {canonical_name(text) for text in map(_name_of, self.more)}
        numpy = () if "numpy" in names else ("numpy",)
        requirements = (release.requirement, *self.more, *numpy)
        return Stack(release.stack, framework, requirements=requirements)


@dataclass(frozen=True)
class Work:
    """The items of a release that the history lacks; ``present`` are the ids of the others."""

    release: Release
    missing: tuple[str, ...]
    present: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """Result of a release: the number of items measured, and the reason why others were not."""

    measured: int
    problem: str = ""


def _name_of(requirement: str) -> str:
    for end, character in enumerate(requirement):
        if not (character.isalnum() or character in "-_."):
            return requirement[:end]
    return requirement


def plan_work(
    releases: Sequence[Release],
    options: BackfillOptions,
    measured: Mapping[str, Collection[str]],
) -> list[Work]:
    """Return the items of each release; ``measured`` has the keys that are there by version.

    pytest is asked for the items of one release: those of the others differ by its name. Raises
    MlmsError where it finds none.
    """
    first = options.stack_of(releases[0])
    keys = _keys(options.manifests, first)
    items = _collected(first, options)
    planned = []
    for release in releases:
        there = measured.get(str(release.version), ())
        missing: list[str] = []
        present: list[str] = []
        for item in items:
            own = item.replace(f"[{first.name}-", f"[{release.stack}-")
            (present if _key_of(item, keys) in there else missing).append(own)
        planned.append(Work(release, tuple(missing), tuple(present)))
    return planned


def measured_cases(connection: Connection, package: str) -> dict[str, set[str]]:
    """Return the keys of the cases that the history has of each version of a package.

    An item whose values say nothing doesn't count.
    """
    found = series_by_id(connection, series_names(connection))
    keys = {series.id: _key(series.parts) for series in found}
    point, of_package = schema.point.c, schema.package.c
    query = (
        select(point.series, of_package.version)
        .join(schema.package, of_package.lock_sha256 == point.stack)
        .where(of_package.name == canonical_name(package), point.verdict.not_in(UNUSABLE))
        .distinct()
    )
    measured: dict[str, set[str]] = {}
    for number, version in connection.execute(query):
        if number in keys:  # others were added meanwhile
            measured.setdefault(version, set()).add(keys[number])
    return measured


def _key(parts: Mapping[str, Any]) -> str:
    """Return the parts of a series that releases have in common, on stacks of any names."""
    kept = {name: part for name, part in parts.items() if name not in _OF_RELEASES}
    return json.dumps(kept, sort_keys=True)


def _keys(paths: Iterable[Path], stack: Stack) -> dict[tuple[str, str], str]:
    """Return the key of each case on this machine, by the end of its item's id and its manifest."""
    machine = to_plain(machine_state())
    keys = {}
    for path in find_manifests(paths):
        if path.name in STACK_FILES:
            continue
        loaded = load_manifest(path, allow_code=True)
        for kind in _KINDS:
            for case in cases_of(loaded, kind, _only(stack), lambda framework: None):
                end = f"test_{kind}[{case.id}]"
                line = {
                    **to_plain(identity_of(case)),
                    "machine": machine,
                    "nodeid": f".yaml::{end}",
                }
                keys[str(path.absolute()), end] = _key(parts_of(line))
    return keys


def _only(stack: Stack) -> StacksOf:
    return lambda framework: [stack] if framework == stack.framework else []


def _key_of(item: str, keys: Mapping[tuple[str, str], str]) -> str | None:
    """Return the key of an item's id; None where its manifest isn't certain."""
    file, _, end = item.partition("::")
    found = [
        key for (path, of), key in keys.items() if of == end and f"/{path}".endswith(f"/{file}")
    ]
    return found[0] if len(found) == 1 else None


def _collected(stack: Stack, options: BackfillOptions) -> list[str]:
    """Return the ids of the items that a stack runs. Raises MlmsError where there are none."""
    with tempfile.TemporaryDirectory(prefix="mlms-backfill-") as folder:
        write_stacks(Path(folder, "stacks.yaml"), {stack.name: stack})
        words = _arguments(stack, folder, options)
        pytest = module_command("pytest", with_folder=True)
        command = [*pytest, "--collect-only", "-q", *words]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            check=False,
        )
    marker = f"[{stack.name}-"
    items = [line for line in done.stdout.splitlines() if "::test_" in line and marker in line]
    if items:
        return items
    if done.returncode == _NOTHING_COLLECTED:
        paths = ", ".join(map(str, options.manifests))
        raise MlmsError(f"{paths} has no item for {stack.framework}; name others, or another -k")
    lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
    shown = "\n  ".join(lines[-_SHOWN_LINES:])
    raise MlmsError(f"pytest can't collect the items of {stack.name}:\n  {shown}")


def _arguments(stack: Stack, folder: str, options: BackfillOptions) -> list[str]:
    """Return the arguments of pytest that choose a stack, which a folder declares."""
    arguments = [f"--mlms-manifests={path}" for path in (*options.manifests, folder)]
    arguments.append(f"--mlms-stack={stack.name}")
    if options.expression:
        arguments.append(f"-k={options.expression}")
    return arguments + options.child.arguments


def measure_release(work: Work, options: BackfillOptions, show: Show) -> Outcome:
    """Measure the missing items of a release; pytest adds them to the history.

    A release that can't be installed has that as its problem.
    """
    stack = options.stack_of(work.release)
    try:
        prepare(stack, options.child.cache, show=show)
    except MlmsError as error:
        return Outcome(0, str(error))
    with declared_for_run({stack.name: stack}, options.child.results) as folder:
        arguments = _arguments(stack, folder, options)
        arguments += [f"--deselect={item}" for item in work.present]
        done = run_child([*arguments, *_QUIET, "--mlms-history="], options.child_to_add, folder)
    if done.run is None:
        return Outcome(0, f"pytest made no run (exit status {done.status})")
    return _outcome_of(read_results(done.run / "results.jsonl"))


def _outcome_of(lines: Iterator[dict[str, Any]]) -> Outcome:
    measured = 0
    problems = []
    for line in ItemLines.of(lines).lines.values():
        if line.get("control"):
            continue
        if line["verdict"] in (*UNUSABLE, "SKIPPED"):
            problems.append(str(line.get("teardown") or line.get("message") or line["verdict"]))
        else:
            measured += 1
    return Outcome(measured, problems[0] if problems else "")
