"""Lock files, by path or at a revision of git: their reading, and the text that is written.

Every error of one has its line. The text is TOML with a line for each item, sorted, so that diffs
are short."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

import pytest_mlms
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import read_regular
from pytest_mlms.core.text import find_control
from pytest_mlms.keep.lockfile.lock import FORMAT, Lock, LockedStack
from pytest_mlms.manifest.load import shown
from pytest_mlms.manifest.messages import describe
from pytest_mlms.manifest.yaml12 import Document, Error, joined

_MOST_BYTES = 64 << 20
_MOST_ERRORS = 20
_ADVICE = "restore it from version control, or remove it and run 'mlms lock write'"
_CONFLICT = re.compile(r"^(<{7}|={7}|>{7}|\|{7})( |$)", re.MULTILINE)
_AT_LINE = re.compile(r" \(at (line (?P<line>\d+), column \d+|end of document)\)$")

_Keys = tuple[str, ...]
"""The keys from the root to a value."""

_NAME = r'"(?:[^"\\\n]|\\.)*"|[\w-]+'
_HEADER = re.compile(rf"\s*\[(?P<table>{_NAME})(\.(?P<key>{_NAME}))?\]\s*$")
_KEY = re.compile(rf"\s*(?P<key>{_NAME})\s*=")


class LockError(MlmsError):
    """A lock file can't be read, or doesn't fit."""


def read_lock(path: Path) -> Lock:
    """Return the lock in a file.

    Raises LockError with the errors of the file, each with its line, and for a newer format.
    """
    name = str(shown(path.absolute()))
    try:
        data = read_regular(path, _MOST_BYTES)
    except FileNotFoundError:
        raise LockError(f"there is no {name}; write it by 'mlms lock write'") from None
    except OSError as error:
        raise LockError(f"{name} can't be read: {error.strerror}; check the path") from None
    return parse_lock(data, name)


def parse_lock(data: bytes, name: str) -> Lock:
    """Return the lock of a file's content; ``name`` is what errors call the file."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LockError(f"{name}:{line}: is not UTF-8; {_ADVICE}") from None
    conflict = _CONFLICT.search(text)
    if conflict:
        line = text.count("\n", 0, conflict.start()) + 1
        advice = "keep the lines that hold, or take one side and run 'mlms lock write'"
        raise LockError(f"{name}:{line}: has a conflict of a merge; {advice}")
    try:
        document = _document_of(_parse_toml(text, name), text)
    except RecursionError:
        raise LockError(f"{name}:1: is nested too deeply; {_ADVICE}") from None
    _check_format(document, name)
    return _validate(document, name)


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(text)
    except ValueError as error:
        problem = str(error)
        reason = _AT_LINE.sub("", problem)
        line = _line_of(problem) or text.count("\n") + 1
        raise LockError(f"{name}:{line}: is not TOML: {reason}; {_ADVICE}") from None


def _line_of(problem: str) -> int | None:
    """Return the line that the parser's error names; None for the end of the document."""
    found = _AT_LINE.search(problem)
    if found is None or found["line"] is None:
        return None
    return int(found["line"])


def _check_format(document: Document, name: str) -> None:
    """Raise LockError for a file without a format, or with a newer one."""
    found = document.value.get("format")
    line = document.line(("format",))
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise LockError(f"{name}:{line}: 'format = {FORMAT}' is missing; {_ADVICE}")
    if found > FORMAT:
        ours = f"pytest-mlms {pytest_mlms.__version__} reads format {FORMAT}"
        problem = f"is of format {found}, and {ours}"
        raise LockError(f"{name}:{line}: {problem}; install a newer one; the file is left as it is")


def _validate(document: Document, name: str) -> Lock:
    """Return the lock; raises LockError with the errors of the document."""
    lock = Lock()
    errors = list(document.errors)
    try:
        lock = Lock.model_validate(document.value)
    except ValidationError as error:
        for found in error.errors(include_url=False)[:_MOST_ERRORS]:
            errors.append(describe(found, document, Lock))
    errors += _unknown_stacks(lock, document)
    if errors:
        first = sorted(errors)[:_MOST_ERRORS]
        lines = [f"{name}:{line}: {problem}" for line, problem in first]
        raise LockError("\n".join(lines))
    return lock


def _unknown_stacks(lock: Lock, document: Document) -> Iterator[Error]:
    for nodeid, item in lock.items.items():
        if item.stack not in lock.stacks:
            line = document.line(("items", nodeid))
            yield line, f"there is no stack {item.stack!r} in the file; {_ADVICE}"


def _document_of(value: Mapping[str, Any], text: str) -> Document:
    """Return the values of a TOML file with their lines, as far as a key begins a line.

    A control character in a text is one of its errors.
    """
    document = Document(value)
    root = _Place(keys=(), path="", line=1)
    _add(document, _lines_of(text), root, value)
    return document


class _Place(NamedTuple):
    """The place of a value: its keys, its path in the document, and the nearest known line."""

    keys: _Keys
    path: str
    line: int

    def inner(self, key: str | int) -> _Place:
        """Return the place of a part of the value."""
        keys = (*self.keys, str(key))
        return _Place(keys, joined(self.path, key), self.line)


def _add(document: Document, lines: Mapping[_Keys, int], place: _Place, value: Any) -> None:
    """Add the line of a value and of its parts: that of the table for one without its own."""
    line = lines.get(place.keys, place.line)
    place = place._replace(line=line)
    document.lines.add(place.path, line)
    for text in (*place.keys[-1:], value):
        _check_text(document, text, line)
    for key, part in _parts(value):
        _add(document, lines, place.inner(key), part)


def _check_text(document: Document, text: Any, line: int) -> None:
    """Add an error for a text with a control character."""
    if not isinstance(text, str):
        return
    control = find_control(text)
    if control:
        problem = f"has the control character {control!r} in a text; remove it"
        document.errors.append((line, problem))


def _parts(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, list):
        return enumerate(value)
    return ()


def _lines_of(text: str) -> dict[_Keys, int]:
    """Return the first line of each table and key."""
    lines: dict[_Keys, int] = {}
    table: _Keys = ()
    for number, line in enumerate(text.split("\n"), start=1):
        header = _HEADER.match(line)
        found = _KEY.match(line)
        if header:
            names = [name for name in header.group("table", "key") if name]
            table = tuple(map(_plain, names))
            lines.setdefault(table[:1], number)
            lines.setdefault(table, number)
        elif found:
            key = _plain(found["key"])
            lines.setdefault((*table, key), number)
    return lines


def _plain(key: str) -> str:
    """Return a key without its quotes."""
    if not key.startswith('"'):
        return key
    try:
        return str(json.loads(key))
    except ValueError:
        return key


_GIT = "git:"


def read_version(name: str, file: Path) -> Lock:
    """Return the lock at a path, or for ``git:REV`` that of ``file`` at a revision.

    Raises LockError.
    """
    if not name.startswith(_GIT):
        return read_lock(Path(name))
    revision = name.removeprefix(_GIT)
    if not revision or revision.startswith("-"):
        raise LockError(f"{name!r} names no revision; write one as in 'git:HEAD'")
    path = file.absolute()
    try:
        done = _show(revision, path)
    except OSError as error:
        raise LockError(f"{name}: git can't be run: {error.strerror}; install it") from None
    if done.returncode:
        reason = _reason(done)
        raise LockError(f"{name} has no {path.name}: {reason}; name another revision")
    return parse_lock(done.stdout, f"{revision}:{path.name}")


def _show(revision: str, path: Path) -> subprocess.CompletedProcess[bytes]:
    """Have git print a file as it was at a revision."""
    return subprocess.run(
        ["git", "show", f"{revision}:./{path.name}"],
        cwd=path.parent,
        capture_output=True,
        check=False,
    )


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return the first line of git's error."""
    text = done.stderr.decode(errors="replace")
    lines = text.strip().splitlines()
    if lines:
        return lines[0]
    return f"git ended with status {done.returncode}"


_HEADING = "# Written by 'mlms lock write', reviewed as code is. 'mlms lock check' compares a run."
_ADVISORY = "# Advisory: nothing fails by timings. A change within the noise doesn't renew them."
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff]")


def lock_text(lock: Lock) -> str:
    """Return the text of ``lock``; equal locks have equal texts."""
    return "\n".join(_lines(lock)) + "\n"


def _lines(lock: Lock) -> Iterator[str]:
    yield _HEADING
    yield f"format = {lock.format}"
    for key, stack in sorted(lock.stacks.items()):
        yield ""
        yield from _stack_lines(key, stack)
    yield ""
    yield "[items]"
    for nodeid, item in sorted(lock.items.items()):
        yield _pair(nodeid, item.model_dump(exclude_defaults=True))
    for machine, timings in sorted(lock.timings.items()):
        yield ""
        yield _ADVISORY
        yield f"[timings.{_quoted(machine)}]"
        for nodeid, by_quantity in sorted(timings.items()):
            yield _pair(nodeid, by_quantity)


def _stack_lines(key: str, stack: LockedStack) -> Iterator[str]:
    yield f"[stacks.{_quoted(key)}]"
    yield f"python = {_quoted(stack.python)}"
    if stack.variables:
        yield f"variables = [{', '.join(map(_quoted, stack.variables))}]"
    yield "packages = ["
    for package in stack.packages:
        yield f"  {_quoted(package)},"
    yield "]"


def _pair(key: str, value: Mapping[str, Any]) -> str:
    return f"{_quoted(key)} = {_value(value)}"


def _value(value: Any) -> str:
    """Return a value of TOML, in one line."""
    if isinstance(value, Mapping):
        pairs = [_inner_pair(name, part) for name, part in value.items()]
        text = ", ".join(pairs)
        return f"{{{text}}}"
    if isinstance(value, str):
        return _quoted(value)
    return repr(value)


def _inner_pair(name: str, value: Any) -> str:
    key = name if _BARE.fullmatch(name) else _quoted(name)
    return f"{key} = {_value(value)}"


def _quoted(text: str) -> str:
    """Return a basic string of TOML: JSON's, with more characters escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(_escape, quoted)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\u{number:04x}"
