"""Environments made on demand: an interpreter's own venv and pip (or uv), once for all processes of
a host.

Below the cache, ``stacks/DIGEST/`` is a whole environment: its name appears by a rename when
everything is in it, so one that is there is whole, whenever a process was killed. The digest is of
Python, platform, requirements and the exact packages that these became. ``stacks/requests/`` says
which environment a request became; its locks see to it that one process makes it and the others
wait. ``DIGEST.use`` is locked, shared, by every process that uses it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pytest_mlms.errors import StackError
from pytest_mlms.records import Stack
from pytest_mlms.stacks.installers import Show, install
from pytest_mlms.stacks.interpreters import Interpreter

__all__ = [
    "Environment",
    "clear_strays",
    "environments",
    "existing",
    "provide",
    "release",
    "remove",
]


@dataclass(frozen=True)
class Environment:
    """An environment that is whole.

    For which stack and Python it was made, and its exact packages.
    """

    folder: Path
    stack: str
    python: str
    platform: str
    requirements: tuple[str, ...]
    lock: tuple[str, ...]

    @property
    def interpreter(self) -> Path:
        """The environment's own interpreter."""
        return self.folder / "bin" / "python"


_FACTS = "mlms-stack.json"
_held: dict[Path, int] = {}
_failed: dict[tuple[Path, str], str] = {}


def provide(stack: Stack, interpreter: Interpreter, cache: Path, show: Show) -> Environment:
    """Return the stack's environment, made now where it isn't there, and in use until this process
    ends.

    Raises StackError with the installer's last lines; nothing is left behind then. What failed once
    fails again at once in this process: the items after the first need not wait for it.
    """
    folder = cache.absolute() / "stacks"
    request = _digest(*_request(stack, interpreter))
    pointer = folder / "requests" / request
    if (folder, request) in _failed:
        raise StackError(_failed[folder, request])
    try:
        pointer.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(pointer.with_suffix(".lock")):
            made = _existing(folder, pointer) or _make(stack, interpreter, folder, request, show)
            _use(made.folder)
    except StackError as error:
        _failed[folder, request] = str(error)
        raise
    except OSError as error:
        raise StackError(
            f"stack {stack.name}: {error.strerror or error} ({error.filename or folder}); make room or grant access, "
            f"or name another cache with --mlms-cache"
        ) from error
    return made


def existing(stack: Stack, interpreter: Interpreter, cache: Path) -> Environment | None:
    """Return the stack's environment if it has been made.

    Raises StackError where its lock file can't be read.
    """
    folder = cache.absolute() / "stacks"
    return _existing(folder, folder / "requests" / _digest(*_request(stack, interpreter)))


def environments(cache: Path) -> Iterator[Environment]:
    """Yield the environments that are there, by the name of their stack."""
    facts = (cache.absolute() / "stacks").glob(f"*/{_FACTS}")
    found = [_read(path.parent) for path in facts if path.parent.suffix != ".new"]
    yield from sorted(found, key=lambda made: (made.stack, made.python))


def remove(environment: Environment) -> None:
    """Remove an environment; raises StackError where a process uses it, or the system refuses."""
    try:
        _remove(environment)
    except OSError as error:
        raise StackError(
            f"stack {environment.stack} can't be removed: {error.strerror or error} "
            f"({error.filename or environment.folder}); grant access, or remove it by hand"
        ) from error


def clear_strays(cache: Path) -> None:
    """Remove what is left of installations that were killed; those that go on are left alone."""
    for stray in (cache.absolute() / "stacks").glob("*.new"):
        lock = filelock.FileLock(
            stray.with_name("requests") / f"{stray.name.partition('-')[0]}.lock", timeout=0
        )
        with contextlib.suppress(filelock.Timeout), lock:
            shutil.rmtree(stray, ignore_errors=True)


def release() -> None:
    """Forget what this process uses and what failed in it, as its end does."""
    while _held:
        os.close(_held.popitem()[1])
    _failed.clear()


def _request(stack: Stack, interpreter: Interpreter) -> list[str]:
    """Return everything that decides what is installed."""
    python = [interpreter.implementation, interpreter.version, interpreter.platform]
    locked = list(_locked(stack)) if stack.lock else []
    wheels = [Path(text) for text in stack.requirements if text.endswith(".whl")]
    files = [hashlib.sha256(path.read_bytes()).hexdigest() for path in wheels if path.is_file()]
    return [
        *python,
        stack.installer,
        *stack.requirements,
        *files,
        "options",
        *stack.options,
        "lock",
        *locked,
    ]


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def _existing(folder: Path, pointer: Path) -> Environment | None:
    with contextlib.suppress(FileNotFoundError):
        return _read(folder / pointer.read_text())
    return None


def _read(folder: Path) -> Environment:
    facts = json.loads((folder / _FACTS).read_text())
    facts.update(requirements=tuple(facts["requirements"]), lock=tuple(facts["lock"]))
    return Environment(folder, **facts)


def _pointers(folder: Path) -> list[Path]:
    requests = [path for path in (folder.parent / "requests").iterdir() if not path.suffix]
    return sorted(path for path in requests if path.read_text() == folder.name)


def _make(
    stack: Stack, interpreter: Interpreter, folder: Path, request: str, show: Show
) -> Environment:
    """Make the environment under a temporary name, and rename it."""
    for stray in folder.glob(
        f"{request}-*.new"
    ):  # of a process that was killed; nobody else makes this one
        shutil.rmtree(stray, ignore_errors=True)
    new = (
        folder / f"{request}-{os.urandom(4).hex()}.new"
    )  # the killed one's pip may still write to the other
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(shutil.rmtree, new, ignore_errors=True)
        wanted = _locked(stack) if stack.lock else stack.requirements
        lock = tuple(install(stack, interpreter, new, wanted, show))
        final = folder / _digest(*_request(stack, interpreter), *lock)
        made = Environment(
            final, stack.name, interpreter.version, interpreter.platform, stack.requirements, lock
        )
        written = {key: value for key, value in asdict(made).items() if key != "folder"}
        (new / _FACTS).write_text(json.dumps(written, indent=2))
        _readdress(new, final)
        if not final.exists():  # its pointer was lost
            os.replace(new, final)
        on_failure.pop_all()
    shutil.rmtree(new, ignore_errors=True)
    pointer = folder / "requests" / request
    temporary = pointer.with_suffix(".tmp")
    temporary.write_text(final.name)
    os.replace(temporary, pointer)
    return made


def _remove(environment: Environment) -> None:
    folder = environment.folder
    with contextlib.ExitStack() as stack:
        for pointer in _pointers(folder):
            stack.enter_context(filelock.FileLock(pointer.with_suffix(".lock")))
        use = os.open(f"{folder}.use", os.O_RDWR | os.O_CREAT, 0o666)
        stack.callback(os.close, use)
        try:
            fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackError(
                f"stack {environment.stack} is in use by a process; wait for it, or end it"
            ) from None
        for pointer in _pointers(folder):
            pointer.unlink()
        gone = folder.with_name(
            f"{folder.name}-{os.urandom(4).hex()}.new"
        )  # its own name is never half of it
        os.replace(folder, gone)
        shutil.rmtree(gone)
        os.unlink(f"{folder}.use")


def _readdress(new: Path, final: Path) -> None:
    """Have the scripts name the interpreter by the folder's name to be.

    Only they know where they are.
    """
    for script in (new / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            with script.open("rb") as file:
                text = file.read(1 << 16)
            if text.startswith(b"#!") and os.fsencode(new) in text:
                script.write_bytes(
                    script.read_bytes().replace(os.fsencode(new), os.fsencode(final))
                )


def _use(folder: Path) -> None:
    """Tell others that this process uses the environment.

    The kernel takes it back when the process ends.
    """
    path = Path(f"{folder}.use")
    if path in _held and not path.exists():
        os.close(_held.pop(path))  # of an environment that somebody removed by hand
    if path not in _held:
        _held[path] = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        fcntl.flock(_held[path], fcntl.LOCK_SH)


def _locked(stack: Stack) -> tuple[str, ...]:
    """Return the exact packages of a stack's lock file.

    Raises StackError where it isn't one of its requirements.
    """
    assert stack.lock
    again = f"'mlms stack lock {stack.name}' writes it"
    try:
        lines = stack.lock.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise StackError(
            f"{stack.place}: {stack.lock} can't be read: {error.strerror}; {again}"
        ) from None
    found = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    for text in stack.requirements:
        if not text.endswith(".whl") and not _met(Requirement(text), found):
            raise StackError(
                f"{stack.place}: {stack.lock} has nothing that is {text}; {again} anew"
            )
    return found


def _met(requirement: Requirement, packages: Sequence[str]) -> bool:
    if requirement.marker:
        return True  # which the stack's own Python decides
    for package in map(Requirement, packages):
        if canonicalize_name(package.name) == canonicalize_name(requirement.name):
            exact = [one.version for one in package.specifier]
            return not exact or requirement.specifier.contains(exact[0], prereleases=True)
    return False
