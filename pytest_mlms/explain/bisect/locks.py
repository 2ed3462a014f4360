"""The stacks that two lock files have for one point of a manifest."""

from __future__ import annotations

from pathlib import Path

from pytest_mlms.config import LOCK_FILE
from pytest_mlms.core.errors import MlmsError, Unavailable
from pytest_mlms.core.records import Stack
from pytest_mlms.explain.bisect.question import End, Point, model_of
from pytest_mlms.keep.lockfile.baseline import LockFile, locked_stack
from pytest_mlms.keep.lockfile.lock import Lock
from pytest_mlms.keep.lockfile.reading import read_version
from pytest_mlms.project import project_stacks
from pytest_mlms.provide.cases import Case

_EXAMPLE = "'m.yaml::test_upgrade[STACK-cpu-b1]'"


def locked_stacks(point: Point, good: str, bad: str) -> tuple[Stack, Stack]:
    """Return the locked stacks of both files, which may be ``git:REV``.

    The framework is that of the locked items of the manifest; of several, that whose stack the node
    id names. Raises MlmsError where a file has no such item, or several.
    """
    return _locked_stack(point, good), _locked_stack(point, bad)


def _locked_stack(point: Point, name: str) -> Stack:
    lock = read_version(name, Path(LOCK_FILE))
    path = Path(name)
    file = LockFile(path.absolute(), lock)
    framework = _framework(point, lock, file.name)
    model = model_of(point, framework)
    stack = Stack(point.item or framework, framework)
    where = (model, stack, point.device, point.batch_size, None)
    case = Case("upgrade", point.loaded, *where, shape=point.shape)
    declared = project_stacks([point.path])
    try:
        return locked_stack(case, file, stack.name, declared)
    except Unavailable as error:
        advice = f"or begin the case of the node id with one, as in {_EXAMPLE}"
        raise MlmsError(f"{error}; {advice}") from None


def _framework(point: Point, lock: Lock, file: str) -> str:
    """Return the one framework of the point in a lock, or the one that the node id names."""
    frameworks = _locked_frameworks(point, lock)
    if len(frameworks) == 1:
        return frameworks[0]
    named = [name for name in frameworks if point.item.startswith(name)]
    if len(named) == 1:
        return named[0]
    manifest = point.loaded.manifest
    model = f"{manifest.name} on {point.device}"
    if not frameworks:
        problem = f"{file} has no item of {model}"
        raise MlmsError(f"{problem}; name a lock file of a run that measured it")
    known = ", ".join(frameworks)
    first = frameworks[0]
    example = f"{point.path}::test_upgrade[{first}-{point.case}]"
    problem = f"{file} has several frameworks for {model}: {known}"
    raise MlmsError(f"{problem}; begin the case with one of them, as in '{example}'")


def _locked_frameworks(point: Point, lock: Lock) -> list[str]:
    """Return the manifest's frameworks that a lock has on the point's device, sorted."""
    manifest = point.loaded.manifest
    offered = {model.name for model in manifest.models}
    found = set()
    for item in lock.items.values():
        is_same = item.manifest == manifest.name and item.device == point.device
        if is_same and item.framework in offered:
            found.add(item.framework)
    return sorted(found)


def end_of(text: str, stack: Stack) -> End:
    """Return a lock file as an end of a bisection, with the stack that it has."""
    return End(text, stack.requirements, stack.python)
