"""Baselines of upgrades from a lock file; an item without one says why where it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_mlms.config import LOCK
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.provide.cases import Case

if TYPE_CHECKING:
    from pytest_mlms.keep.lockfile.baseline import LockFile


def with_locked_baseline(case: Case, file: Path, declared: Mapping[str, Stack]) -> Case:
    """Return the upgrade of a case from the stack that it has in a lock file.

    Threads, cores and the predictor's options are those of today on both sides. Raises LockError
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
