"""The record of a bisection, bisect.json: what was asked, judged and found so far.

It has everything that a report, a replay and a reduction of the regression need: the question, the
exact packages of each stack, each probe with its run, and the answer. One process at a time writes
to it."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import filelock
from pydantic import ValidationError

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import read_regular, write_atomically
from pytest_mlms.core.serialization import from_plain, parse_json, to_plain
from pytest_mlms.core.waits import holder_of
from pytest_mlms.explain.bisect.judgement import Judgement
from pytest_mlms.explain.bisect.question import Question
from pytest_mlms.explain.bisect.search import AnswerKind, Outcome, Purpose

FORMAT = 1
"""The format of the file: raised when an older pytest-mlms would misread it."""

_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class StackRecord:
    """A stack that was judged: how it is declared, and its exact packages once it was made.

    ``problem`` is why it could not be installed.
    """

    framework: str
    requirements: tuple[str, ...]
    python: str | None = None
    options: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Probe:
    """A judgement on two stacks by name, and the run and item that it rests on.

    A stack that can't be installed has no run.
    """

    before: str
    after: str
    purpose: Purpose
    effort: int
    judgement: Judgement
    run: str = ""
    nodeid: str = ""
    began: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Conclusion:
    """The answer of a bisection.

    Attributes:
        kind: The kind of the answer.
        before: The last stack before the change.
        after: The first stack after it.
        package: The package, or packages with blanks between, that changed between both.
        old: Its version before.
        new: Its version after.
        between: Releases between both that could not be judged.
        others: Other packages that changed with it, as in "numpy 2.4.5 → 2.4.6".
        judgement: The last judgement, of both stacks against each other on fresh data.
        run: The run of that judgement.
        nodeid: The item of that judgement.
        spent: Whether the search ended because all probes were used.
    """

    kind: AnswerKind
    before: str
    after: str
    package: str
    old: str
    new: str
    between: tuple[str, ...]
    others: tuple[str, ...]
    judgement: Judgement
    run: str = ""
    nodeid: str = ""
    spent: bool = False


@dataclass
class Record:
    """A bisection so far.

    ``quantity`` is the one that was asked for, or else the first one that the ends differ in.
    ``releases`` are the versions that are searched, from the good end to the bad one; ``changed``
    are the packages that differ between two lock files, of which ``culprits`` are enough to make it
    worse, and ``minimal`` is whether it was judged to be fine without any one of them.
    """

    question: Question
    format: int = FORMAT
    plugin: str = pytest_mlms.__version__
    began: str = ""
    quantity: str | None = None
    package: str = ""
    releases: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    culprits: list[str] = field(default_factory=list)
    minimal: bool = False
    stacks: dict[str, StackRecord] = field(default_factory=dict)
    probes: list[Probe] = field(default_factory=list)
    answer: Conclusion | None = None

    def find(self, before: str, after: str, purpose: Purpose, effort: int) -> Probe | None:
        """Return the probe of two stacks; that of neighbours only where it was made for them."""
        for probe in self.probes:
            is_fresh = probe.purpose == "neighbours"
            same = (probe.before, probe.after, probe.effort) == (before, after, effort)
            if same and is_fresh == (purpose == "neighbours"):
                return probe
        return None

    def reopen(self) -> None:
        """Forget the answer, and what could not be installed: it is tried again."""
        kept = []
        for probe in self.probes:
            if probe.judgement.outcome is not Outcome.UNAVAILABLE:
                kept.append(probe)
        self.probes = kept
        self.answer = None

    @property
    def measured(self) -> int:
        """The number of probes that were measured."""
        return sum(probe.judgement.outcome is not Outcome.UNAVAILABLE for probe in self.probes)

    def write(self, path: Path) -> None:
        """Write the record, whole or not at all. Raises MlmsError."""
        text = json.dumps(to_plain(self), indent=1, ensure_ascii=False)
        try:
            write_atomically(path, f"{text}\n")
        except OSError as error:
            problem = f"{path} can't be written: {error.strerror}"
            raise MlmsError(f"{problem}; make room, or name another one with --file") from None


def read_record(path: Path, question: Question) -> Record:
    """Return the record of a question; raises MlmsError where the file has another one."""
    record = load_record(path)
    difference = question.difference(record.question)
    if difference:
        raise MlmsError(f"{path} is of another question: {difference}; {_START_ANEW}")
    return record


def load_record(path: Path) -> Record:
    """Return the record of a file; raises MlmsError where there is none that can be read."""
    try:
        value = parse_json(read_regular(path, _MOST_BYTES))
    except FileNotFoundError:
        problem = f"there is no {path} to go on with"
        raise MlmsError(f"{problem}; name it with --file, or leave out --resume") from None
    except OSError as error:
        raise MlmsError(f"{path} can't be read: {error.strerror}; check the path") from None
    except ValueError as error:
        raise MlmsError(f"{path} is not JSON: {error}; {_START_ANEW}") from None
    found = value.get("format") if isinstance(value, dict) else None
    if found != FORMAT:
        problem = f"{path} has format {found}, and this pytest-mlms reads {FORMAT}"
        raise MlmsError(f"{problem}; {_START_ANEW}")
    try:
        return from_plain(Record, value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise MlmsError(f"{path}: {place}: {first['msg']}; {_START_ANEW}") from None


_START_ANEW = "name another file with --file, or leave out --resume, which sets it aside"


def set_aside(path: Path) -> Path | None:
    """Rename the record of an earlier bisection; return its new name, None where there is none.

    Raises MlmsError where it can't be renamed.
    """
    try:
        time = path.stat().st_mtime
    except FileNotFoundError:
        return None
    changed = datetime.datetime.fromtimestamp(time, datetime.timezone.utc)
    stem = f"{path.stem}-{changed:%Y%m%d-%H%M%S}"
    other = path.with_name(f"{stem}{path.suffix}")
    number = 1
    while other.exists():
        number += 1
        other = path.with_name(f"{stem}-{number}{path.suffix}")
    try:
        path.rename(other)
    except OSError as error:
        problem = f"{path} is there and can't be renamed: {error.strerror}"
        raise MlmsError(f"{problem}; name another one with --file") from None
    return other


@contextlib.contextmanager
def hold_record(path: Path) -> Iterator[None]:
    """Hold the record ``path``, which the kernel releases when this process ends.

    Raises MlmsError, which names the process that has it. Where the file system has no locks, or
    the folder can't be written, nothing is held.
    """
    lock_file = path.with_name(f".{path.name}.lock")
    lock = filelock.FileLock(lock_file)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        problem = f"{path} is in use by {holder_of(lock_file)}"
        raise MlmsError(f"{problem}; wait for it, or name another file with --file") from None
    except (OSError, NotImplementedError):
        pass
    try:
        yield
    finally:
        lock.release()
