"""Virtual environments for stacks, made on demand and shared by all processes of a host.

Layout below ``stacks/`` in the cache:

- ``DIGEST/``: a complete environment. It is made as ``DIGEST-….new`` and renamed when everything
  is in it, so an environment with its final name is complete even if a process was killed. The
  digest is of all that decides what is installed: the Python, the platform, the requirements.
- ``DIGEST.use``: held by a shared lock by every process that uses the environment, and as old as
  its last use.
- ``DIGEST.lock``: held by the one process that makes or removes it, while the others wait.
- ``seeds/``: environments with pip and nothing else, of pytest_mlms/provide/stacks/seeds.py.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pytest_mlms.core.errors import StackError
from pytest_mlms.core.files import free_space
from pytest_mlms.core.records import Stack
from pytest_mlms.core.text import redact
from pytest_mlms.core.units import format_quantity
from pytest_mlms.core.waits import LOCK_MODE, hold_lock
from pytest_mlms.provide.stacks.installer_settings import deciding_settings, digest_of_file
from pytest_mlms.provide.stacks.installers import Show, install
from pytest_mlms.provide.stacks.interpreters import Interpreter
from pytest_mlms.provide.stacks.seeds import INCOMPLETE, incomplete_folder, move_scripts

_LEAST_FREE = 32 << 20  # bytes, of an environment that has pip and nothing else
_FACTS = "mlms-stack.json"

_held: dict[Path, int] = {}
"""The open ``.use`` file of each environment that this process uses."""

_failed: dict[Path, str] = {}
"""The error of each environment, by its folder, that could not be made in this process."""


@dataclass(frozen=True)
class Environment:
    """A complete environment: the stack and Python that it was made for, and its exact packages.

    ``options`` are the installer's that say where these are from; earlier versions kept none.
    """

    folder: Path
    stack: str
    python: str
    platform: str
    requirements: tuple[str, ...]
    lock: tuple[str, ...]
    options: tuple[str, ...] = ()

    @property
    def interpreter(self) -> Path:
        """The environment's own interpreter."""
        return self.folder / "bin" / "python"

    @property
    def runs(self) -> bool:
        """True if the interpreter is there that it was made with."""
        return self.interpreter.exists()

    @property
    def use_file(self) -> Path:
        """The file that is locked by every process that uses the environment."""
        return self.folder.with_name(f"{self.folder.name}.use")


@dataclass(frozen=True)
class _Request:
    """A stack to be made with an interpreter; ``folder`` has all environments."""

    stack: Stack
    interpreter: Interpreter
    folder: Path

    @property
    def parts(self) -> list[str]:
        """Everything that decides what is installed.

        Raises StackError where the stack's lock file doesn't fit its requirements.
        """
        stack = self.stack
        interpreter = self.interpreter
        parts = [interpreter.implementation, interpreter.version, interpreter.platform]
        parts += [interpreter.abi, "settings", *deciding_settings(stack), "stack"]
        parts += [stack.installer, *stack.requirements, *_wheel_digests(stack)]
        parts += ["options", *stack.options]
        parts += ["lock", *_locked_packages(stack)]
        return parts

    @property
    def target(self) -> Path:
        """The folder of the environment."""
        return self.folder / _digest(self.parts)


def provide(stack: Stack, interpreter: Interpreter, cache: Path, show: Show) -> Environment:
    """Return the stack's environment, made now if needed, and in use until this process ends.

    Raises StackError with the installer's last lines, and leaves nothing behind then. A request
    that failed once fails at once when it is repeated in this process.
    """
    request = _Request(stack, interpreter, _folder(cache))
    target = request.target
    if target in _failed:
        raise StackError(_failed[target])
    try:
        return _provide(request, target, show)
    except StackError as error:
        _failed[target] = str(error)
        raise
    except OSError as error:
        problem = _problem(error, request.folder)
        raise StackError(
            f"stack {stack.name}: {problem}; make room or grant access, "
            f"or name another cache with --mlms-cache"
        ) from error


def existing(stack: Stack, interpreter: Interpreter, cache: Path) -> Environment | None:
    """Return the stack's environment, None if it has not been made.

    Raises StackError where its lock file can't be read.
    """
    return _complete(_Request(stack, interpreter, _folder(cache)).target)


def environments(cache: Path) -> Iterator[Environment]:
    """Yield the environments in the cache, sorted by the name of their stack."""
    found = []
    for facts in _folder(cache).glob(f"*/{_FACTS}"):
        made = None if facts.parent.suffix == INCOMPLETE else _read(facts.parent)
        if made is not None:
            found.append(made)
    found.sort(key=lambda made: (made.stack, made.python))
    yield from found


def remove(environment: Environment) -> None:
    """Remove an environment; raises StackError where a process uses it, or the system refuses."""
    try:
        with filelock.FileLock(_lock_of(environment.folder), mode=LOCK_MODE):
            _remove_locked(environment)
    except OSError as error:
        problem = _problem(error, environment.folder)
        raise StackError(
            f"stack {environment.stack} can't be removed: {problem}; "
            f"grant access, or remove it by hand"
        ) from error


def clear_strays(cache: Path) -> None:
    """Remove the leftovers of installations that were killed, not of those that are running."""
    _clear_strays(_folder(cache))


def _clear_strays(folder: Path) -> None:
    for stray in (*folder.glob(f"*{INCOMPLETE}"), *folder.glob(f"seeds/*{INCOMPLETE}")):
        target = stray.parent / stray.name.partition("-")[0]
        lock = filelock.FileLock(_lock_of(target), timeout=0, mode=LOCK_MODE)
        with contextlib.suppress(filelock.Timeout, OSError), lock:
            shutil.rmtree(stray, ignore_errors=True)


def _check_space(request: _Request) -> None:
    """Raise StackError where not even pip and numpy would have room."""
    free = free_space(request.folder)
    if free is not None and free < _LEAST_FREE:
        problem = f"no space left in {request.folder}, which has {format_quantity(free, 'B')}"
        raise StackError(
            f"stack {request.stack.name}: {problem}; make room, or name another cache with "
            f"--mlms-cache"
        )


def release() -> None:
    """Stop using all environments, which notes the time, and forget what failed.

    The end of the process does the same.
    """
    while _held:
        _, descriptor = _held.popitem()
        with contextlib.suppress(OSError):  # of a disk that is read-only by now
            os.utime(descriptor)
        os.close(descriptor)
    _failed.clear()


atexit.register(release)


def _folder(cache: Path) -> Path:
    return cache.absolute() / "stacks"


def _lock_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.lock")


def _problem(error: OSError, folder: Path) -> str:
    if isinstance(error, shutil.Error):  # of a tree: a source, a target and a reason for each file
        reasons = [str(reason) for _, _, reason in error.args[0]]
        full = [reason for reason in reasons if "No space left" in reason]
        return f"No space left on device ({folder})" if full else reasons[0]
    reason = error.strerror or error
    path = error.filename or folder
    return f"{reason} ({path})"


def _digest(parts: Sequence[str]) -> str:
    text = json.dumps(list(parts))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _wheel_digests(stack: Stack) -> list[str]:
    """Return the digest of each wheel file that a stack requires: its name may stay the same."""
    digests = []
    for requirement in stack.requirements:
        path = Path(requirement)
        if path.suffix == ".whl" and path.is_file():
            digests.append(digest_of_file(path))
    return digests


def _provide(request: _Request, target: Path, show: Show) -> Environment:
    target.parent.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def waiting(holder: Callable[[], str]) -> Iterator[None]:
        show(f"{holder()} makes its environment")
        yield
        show("")

    with hold_lock(_lock_of(target), waiting):
        made = _complete(target) or _make(request, target, show)
        use(made)
    return made


def _complete(folder: Path) -> Environment | None:
    """Return the environment in a folder, None if it isn't there, or no longer runs."""
    try:
        made = _read(folder)
    except FileNotFoundError:
        return None
    return made if made is not None and made.runs else None


def _read(folder: Path) -> Environment | None:
    """Return an environment; None for one that another version of this plugin describes."""
    try:
        facts = json.loads((folder / _FACTS).read_text())
        for key in ("requirements", "lock", "options"):
            facts[key] = tuple(facts.get(key, ()))
        return Environment(folder, **facts)
    except (ValueError, KeyError, TypeError):
        return None


def _write(environment: Environment, folder: Path) -> None:
    facts = asdict(environment)
    del facts["folder"]
    (folder / _FACTS).write_text(json.dumps(facts, indent=2))


def _make(request: _Request, target: Path, show: Show) -> Environment:
    """Make an environment in a folder of its own; the caller holds its lock."""
    for stray in target.parent.glob(f"{target.name}-*{INCOMPLETE}"):
        # A process was killed while it made this environment; its lock is ours now.
        shutil.rmtree(stray, ignore_errors=True)
    _clear_strays(target.parent)
    _check_space(request)
    # The name is new each time: the pip of a killed process may still write to the old one.
    new = incomplete_folder(target.parent, target.name)
    try:
        return _make_in(new, request, target, show)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _make_in(new: Path, request: _Request, target: Path, show: Show) -> Environment:
    """Install into ``new``, and rename it to the environment's final name."""
    stack = request.stack
    interpreter = request.interpreter
    wanted = _locked_packages(stack) if stack.lock else stack.requirements
    lock = install(stack, interpreter, new, wanted, show)
    made = Environment(
        folder=target,
        stack=stack.name,
        python=interpreter.version,
        platform=interpreter.platform,
        requirements=stack.requirements,
        lock=tuple(lock),
        options=tuple(map(redact, stack.options)),
    )
    _write(made, new)
    move_scripts(new / "bin", new, target)
    if target.exists():  # its base interpreter was removed, or another version described it
        gone = incomplete_folder(target.parent, target.name)
        os.replace(target, gone)
        shutil.rmtree(gone, ignore_errors=True)
    os.replace(new, target)
    return made


def use(environment: Environment) -> None:
    """Hold a shared lock on the environment until this process ends."""
    path = environment.use_file
    if path in _held and not path.exists():
        os.close(_held.pop(path))  # of an environment that somebody removed by hand
    if path not in _held:
        _held[path] = _opened(path)
        fcntl.flock(_held[path], fcntl.LOCK_SH)
    os.utime(_held[path])


def last_use(environment: Environment) -> float:
    """Return when a process used an environment last, as the clock tells: now if one does.

    Of one that was killed it is when it began to.

    Raises OSError where the system refuses.
    """
    descriptor = _opened(environment.use_file)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(descriptor).st_mtime
    except BlockingIOError:
        return time.time()
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, LOCK_MODE)
    with contextlib.suppress(PermissionError):  # another user's, which was opened to all
        os.fchmod(descriptor, LOCK_MODE)
    return descriptor


def _remove_locked(environment: Environment) -> None:
    """Remove an environment whose lock is held, unless a process uses it."""
    descriptor = _opened(environment.use_file)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder = environment.folder
        # A folder that is half removed must not have the name of a complete environment.
        gone = incomplete_folder(folder.parent, folder.name)
        os.replace(folder, gone)
        shutil.rmtree(gone)
        os.unlink(environment.use_file)
    except BlockingIOError:
        raise StackError(
            f"stack {environment.stack} is in use by a process; wait for it, or end it"
        ) from None
    finally:
        os.close(descriptor)


def _locked_packages(stack: Stack) -> tuple[str, ...]:
    """Return the exact packages of a stack's lock file, nothing where it has none.

    Raises StackError where the file can't be read or doesn't meet one of the requirements.
    """
    if stack.lock is None:
        return ()
    command = f"'mlms stack lock {shlex.quote(stack.name)}'"
    try:
        text = stack.lock.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"{stack.lock} can't be read: {error.strerror}"
        raise StackError(f"{stack.place}: {problem}; {command} writes it") from None
    packages = _packages(text)
    for requirement in stack.requirements:
        if not _is_met(requirement, packages):
            problem = f"{stack.lock} has nothing that is {requirement}"
            raise StackError(f"{stack.place}: {problem}; {command} writes it anew")
    return packages


def _packages(text: str) -> tuple[str, ...]:
    """Return the lines of a lock file that are not comments."""
    packages = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            packages.append(line.strip())
    return tuple(packages)


def _is_met(text: str, packages: Sequence[str]) -> bool:
    """Return whether one of the exact packages meets a requirement.

    Wheel files and requirements with markers can't be checked here, and count as met.
    """
    if text.endswith(".whl"):
        return True
    requirement = Requirement(text)
    if requirement.marker:
        return True
    name = canonicalize_name(requirement.name)
    for package in map(Requirement, packages):
        if canonicalize_name(package.name) == name:
            return _is_version_met(requirement, package)
    return False


def _is_version_met(requirement: Requirement, package: Requirement) -> bool:
    versions = [specifier.version for specifier in package.specifier]
    if not versions:  # such as a package from an address
        return True
    return requirement.specifier.contains(versions[0], prereleases=True)
