"""Empty virtual environments of interpreters, to copy new environments from.

``python -m venv`` takes seconds to install pip, and a copy a tenth of that. A copy has the same
files as an environment that was made without a seed.

``seeds/DIGEST/`` is complete, as it is made as ``DIGEST-….new`` and renamed at the end. The digest
is of the interpreter and of the pip that was asked for. ``seeds/DIGEST.lock`` is held by the one
process that makes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_mlms.core.waits import hold_lock
from pytest_mlms.provide.stacks.interpreters import Interpreter

INCOMPLETE = ".new"
"""The suffix of an environment that is being made."""

_SCRIPT_BYTES = 1 << 16  # of a script, enough for its first line


def provide_seed(
    interpreter: Interpreter, pip: str, seeds: Path, make: Callable[[Path], None]
) -> Path:
    """Return the folder of an interpreter's seed, which ``make`` makes if it isn't there.

    ``pip`` is the release of pip that is installed into it, "" for the interpreter's own. Raises
    OSError where the folder can't be written.
    """
    seed = seeds / _digest([*map(str, interpreter), pip])
    if seed.exists():
        return seed
    seeds.mkdir(parents=True, exist_ok=True)
    with hold_lock(seed.with_suffix(".lock")):
        if not seed.exists():
            _make(seed, make)
    return seed


def _digest(parts: Sequence[str]) -> str:
    text = json.dumps(parts)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _make(seed: Path, make: Callable[[Path], None]) -> None:
    for stray in seed.parent.glob(f"{seed.name}-*{INCOMPLETE}"):
        shutil.rmtree(stray, ignore_errors=True)  # of a process that was killed
    new = incomplete_folder(seed.parent, seed.name)
    try:
        make(new)
        move_scripts(new / "bin", new, seed)
        os.replace(new, seed)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def incomplete_folder(parent: Path, name: str) -> Path:
    """Return a new name for an environment that is not complete, or no longer."""
    token = os.urandom(4).hex()
    return parent / f"{name}-{token}{INCOMPLETE}"


def copy_seed(seed: Path, folder: Path) -> None:
    """Copy the missing files of an environment without pip from its interpreter's seed."""

    def present(source: str, names: list[str]) -> list[str]:
        target = folder / Path(source).relative_to(seed)
        return [name for name in names if _is_file(target / name)]

    shutil.copytree(seed, folder, symlinks=True, ignore=present, dirs_exist_ok=True)
    move_scripts(folder / "bin", seed, folder)


def _is_file(path: Path) -> bool:
    return path.is_symlink() or path.is_file()


def move_scripts(scripts: Path, old: Path, new: Path) -> None:
    """Replace the environment's old folder by its new one in its Python scripts."""
    before = os.fsencode(old)
    for script in scripts.iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        with script.open("rb") as file:
            start = file.read(_SCRIPT_BYTES)
        if start.startswith(b"#!") and before in start:
            content = script.read_bytes()
            script.write_bytes(content.replace(before, os.fsencode(new)))
