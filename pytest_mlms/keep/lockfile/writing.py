"""The text of a lock file: TOML with a line for each item, sorted, so that diffs are short."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_mlms.keep.lockfile.lock import Lock, LockedStack

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
