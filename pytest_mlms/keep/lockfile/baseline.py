"""The locked software of a case: the baseline of an upgrade against a lock file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_mlms.core.errors import Unavailable
from pytest_mlms.core.records import Stack
from pytest_mlms.keep.lockfile.from_results import exact_software
from pytest_mlms.keep.lockfile.lock import Lock, LockedItem, short_digest, stack_name
from pytest_mlms.keep.lockfile.reading import LockError
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.exact import recreated_stack
from pytest_mlms.provide.stacks.trust import EVERYTHING

_WRITE_FIRST = "run it without --mlms-against, and 'mlms lock write'"
_KEEP_ONE = (
    "measure all items of one, and 'mlms lock write --prune', or name one of them with --mlms-stack"
)


@dataclass(frozen=True)
class LockFile:
    """A lock, and the file that it was read from."""

    path: Path
    lock: Lock

    @property
    def name(self) -> str:
        """The name of the file, without its folder."""
        return self.path.name


def locked_stack(case: Case, file: LockFile, name: str, declared: Mapping[str, Stack]) -> Stack:
    """Return a stack of this name with the locked software of a case.

    The software is that of the locked items of the same manifest, framework and device, whatever
    their kind and batch size. Of several stacks it is the one with the name of the case's stack.
    ``declared`` has the stacks of today, by name. Raises Unavailable where the case isn't locked,
    LockError where the lock is of other files, and StackError for a package that can't be had
    again.
    """
    item = _locked_item(case, file)
    software = file.lock.stacks[item.stack]
    exact = exact_software(item, software, file.path.parent)
    like = declared.get(stack_name(item.stack))
    stack = recreated_stack(name, exact, EVERYTHING, like)
    variables = dict(text.split("=", 1) for text in software.variables)
    return replace(stack, env=tuple({**variables, **dict(stack.env)}.items()))


def _locked_item(case: Case, file: LockFile) -> LockedItem:
    """Return an item that has the locked stack of a case."""
    items = _items_of(case, file)
    same_name = [item for item in items if stack_name(item.stack) == case.stack.name]
    candidates = same_name or items
    stacks = {item.stack for item in candidates}
    if len(stacks) > 1:
        names = ", ".join(sorted(stacks))
        raise Unavailable(f"{file.name} has several stacks for it: {names}; {_KEEP_ONE}")
    return candidates[0]


def _items_of(case: Case, file: LockFile) -> Sequence[LockedItem]:
    """Return the items with the case's model, dataset and device: one or more."""
    framework = case.stack.framework
    candidates = _items_of_device(case, file.lock)
    if not candidates:
        problem = f"{framework} on {case.device} is not locked in {file.name}"
        raise Unavailable(f"{problem}; {_WRITE_FIRST}")
    files = _files_of(case)
    items = [item for item in candidates if _locked_files(item) == files]
    if not items:
        there = ", ".join(_locked_files(candidates[0]))
        now = ", ".join(files)
        problem = f"{file.name} is of other files ({there} there, {now} now)"
        advice = f"an upgrade is of one model: {_WRITE_FIRST}"
        raise LockError(f"{case.place()}: {problem}; {advice}")
    return items


def _items_of_device(case: Case, lock: Lock) -> Sequence[LockedItem]:
    """Return the items of the case's manifest, framework, device and variant."""
    wanted = (case.loaded.manifest.name, case.stack.framework, case.device)
    items = []
    for item in lock.items.values():
        is_of_variant = item.variant in ("", case.model.variant)
        if is_of_variant and (item.manifest, item.framework, item.device) == wanted:
            items.append(item)
    return items


def _files_of(case: Case) -> list[str]:
    """Return the roles and digests of the case's model and dataset."""
    files = []
    for role, digest in case.loaded.model_digests(case.model).items():
        files.append(f"{role} {short_digest(digest)}")
    dataset = case.loaded.dataset_digest
    if dataset is not None and case.has_dataset:
        files.append(f"dataset {short_digest(dataset)}")
    return sorted(files)


def _locked_files(item: LockedItem) -> list[str]:
    """Return the roles and digests of the model and dataset of a locked item."""
    files = [f"{role} {digest}" for role, digest in item.model.items()]
    if item.dataset is not None:
        files.append(f"dataset {item.dataset}")
    return sorted(files)
