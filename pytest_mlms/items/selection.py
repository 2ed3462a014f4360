"""The cases of a manifest that a session runs, by the stacks that its options name.

An upgrade may have its baseline from a lock file; an item without one says why where it runs.
--benchmark-only and --benchmark-skip of pytest-benchmark select items, too: those that measure time
are benchmarks, though they do not use its fixture.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.specifiers import SpecifierSet

from pytest_mlms.config import LOCK
from pytest_mlms.core.errors import ManifestError, MlmsError
from pytest_mlms.core.records import Kind, Stack
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.provide.cases import Case, case_of, cases_of, upgrades_of
from pytest_mlms.provide.stacks.declared import DEFAULT, declared_stacks, stacks_for
from pytest_mlms.provide.stacks.labels import visit_of
from pytest_mlms.provide.stacks.nearest import nearest_stack
from pytest_mlms.session import Session

if TYPE_CHECKING:
    from pytest_mlms.keep.lockfile.baseline import LockFile


def with_locked_baseline(case: Case, file: Path, declared: Mapping[str, Stack]) -> Case:
    """Return the upgrade of a case from the stack that it has in a lock file.

    Both sides have today's threads, cores and predictor's options. Raises LockError
    for a file that can't be read.
    """
    from pytest_mlms.keep.lockfile.baseline import locked_stack

    read = _read(file, file.stat().st_mtime_ns)
    try:
        stack = locked_stack(case, read, LOCK, declared)
    except MlmsError as error:
        nothing = replace(case.stack, name=LOCK, several=False)
        return replace(case, against=nothing, unlocked=error)
    against = replace(
        stack,
        threads=case.stack.threads,
        cores=case.stack.cores,
        variant=case.stack.variant,
        model_options=case.stack.model_options,
    )
    return replace(case, against=against)


@lru_cache(maxsize=1)
def _read(file: Path, modified: int) -> LockFile:
    """Read the file once for all manifests; ``modified`` tells its versions apart."""
    from pytest_mlms.keep.lockfile.baseline import LockFile
    from pytest_mlms.keep.lockfile.reading import read_lock

    return LockFile(file, read_lock(file))


def select_cases(loaded: LoadedManifest, kind: Kind, session: Session) -> list[Case]:
    """Return the cases of one kind. Raises MlmsError where a stack is not declared properly."""
    models = loaded.manifest.models
    stacks = StackSelection.of(session, [model.name for model in models])
    nearest = {model.name: model.versions for model in models if model.or_nearest}
    stacks = replace(stacks, nearest=nearest)
    if loaded.manifest.control:
        stacks = replace(stacks, chosen=[_control_stack(loaded, session)])
    if kind == "upgrade" or (kind == "soak" and session.config.upgrade):
        upgrades = _upgrades(loaded, stacks, compare_with_itself=session.config.aa)
        compared = [replace(case, kind=kind) for case in upgrades]
        return [case for case in compared if kind == "upgrade" or case.scenario is None]
    cases = cases_of(loaded, kind, stacks.candidates, stacks.reference)
    if kind == "performance":
        return cases
    # Hosts are compared by visits, of which only performance needs more than one.
    return [case for case in cases if visit_of(case.stack.name) <= 1]


def _control_stack(loaded: LoadedManifest, session: Session) -> Stack:
    """Return the stack of a host's control, which the manifest's own folder may declare.

    Raises ManifestError where it isn't declared.
    """
    name = str(loaded.manifest.control)
    stack = declared_stacks(session.config.root, [loaded.path]).get(name)
    if stack is None:
        problem = f"there is no stack {name!r}"
        advice = "declare it in a stacks.yaml beside the manifest"
        raise ManifestError(f"{loaded.place('control')}: {problem}; {advice}")
    return stack


def _upgrades(
    loaded: LoadedManifest, stacks: StackSelection, compare_with_itself: bool
) -> list[Case]:
    if compare_with_itself:
        upgrades = upgrades_of(loaded, stacks.candidates, stacks.candidates)
        return [case for case in upgrades if _is_itself(case)]
    upgrades = []
    if stacks.lock is not None:
        candidates = cases_of(loaded, "upgrade", stacks.candidates, lambda framework: None)
        upgrades += [
            with_locked_baseline(case, stacks.lock, stacks.declared) for case in candidates
        ]
    if stacks.against:
        others = upgrades_of(loaded, stacks.candidates, stacks.baselines)
        upgrades += [case for case in others if not _is_itself(case)]
    return upgrades


def _is_itself(case: Case) -> bool:
    """Return whether both sides of an upgrade are the same stack and model."""
    return case.against == case.stack and case.model_against == case.model


@dataclass(frozen=True)
class StackSelection:
    """The stacks that run the models of a manifest.

    ``chosen`` and ``against`` are those that the options name, and ``declared`` all by name, with
    the interpreter that runs pytest as "here". ``frameworks`` are those that the manifest has
    models for, and ``lock`` is the lock file whose stacks are baselines, too. ``nearest`` has the
    versions of those whose models may run with the nearest one.
    """

    chosen: Sequence[Stack]
    against: Sequence[Stack]
    declared: dict[str, Stack]
    frameworks: Collection[str]
    lock: Path | None = None
    nearest: Mapping[str, SpecifierSet] = field(default_factory=dict)

    @classmethod
    def of(cls, session: Session, frameworks: Collection[str]) -> StackSelection:
        """Return the selection of a session. Raises MlmsError."""
        return cls(
            chosen=session.chosen_stacks,
            against=session.baseline_stacks,
            declared=session.declared_stacks,
            frameworks=frameworks,
            lock=session.config.lock,
        )

    def candidates(self, framework: str) -> list[Stack]:
        """Return the stacks that run the model for ``framework``."""
        if self.chosen or framework not in self.nearest:
            return self._among(framework, self.chosen)
        declared = self.declared.values()
        stack = nearest_stack(framework, self.nearest[framework], declared)
        return self._among(framework, [] if stack is None else [stack])

    def baselines(self, framework: str) -> list[Stack]:
        """Return the stacks that upgrades of ``framework`` are compared with."""
        return self._among(framework, self.against)

    def reference(self, framework: str) -> Stack | None:
        """Return the stack that runs the reference of an agreement; None where there is none.

        A chosen stack is preferred to a declared one, and that to the interpreter of pytest.
        """
        possible = [stack for stack in self.chosen if _is_certain(stack) and not stack.variant]
        # ONNX Runtime, the usual reference, is where pytest runs: its declared stack is not made.
        if framework in self.declared and framework != DEFAULT:
            possible.append(self.declared[framework])
        possible.append(self._here)
        for stack in possible:
            found = self._among(framework, [stack])
            if found:
                return found[0]
        return None

    @property
    def _here(self) -> Stack:
        return self.declared["here"]

    def _among(self, framework: str, stacks: Sequence[Stack]) -> list[Stack]:
        return stacks_for(framework, stacks, self.frameworks, self._here)


def _is_certain(stack: Stack) -> bool:
    """Return whether the frameworks of a stack are known: an interpreter may have none of ours."""
    return bool(stack.framework) or stack.interpreter == "current"


_TIMED: tuple[Kind, ...] = ("performance", "upgrade")


def select_benchmarks(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect our items that an option of pytest-benchmark leaves out, and run the others.

    Items of other plugins are left as they are.
    """
    only_timed = config.getoption("benchmark_only")  # it overrides --benchmark-skip
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        case = case_of(item)
        if case is None:
            kept.append(item)
        elif (case.kind in _TIMED) == only_timed:
            item.own_markers[:] = [mark for mark in item.own_markers if not _is_of_benchmark(mark)]
            kept.append(item)
        else:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _is_of_benchmark(mark: pytest.Mark) -> bool:
    return mark.name == "skip" and "--benchmark-only" in mark.kwargs.get("reason", "")
