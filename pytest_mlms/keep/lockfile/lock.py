"""Records of a lock file: what was measured, with what software, and how fast it was.

Timings are values with their intervals, as text that a person reads. A stack's key is its name,
with a number where one name has several softwares."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from pytest_mlms.core.units import format_quantity, parse_quantity
from pytest_mlms.manifest.types import Closed, as_tuple

TIMED = {"latency_p50": "s", "throughput": "/s", "peak_memory": "B"}
"""The quantities of performance that a lock has, with their base units."""

TOLERANCE = 0.03
"""The distance from its interval up to which a change of a timing is not told, as a share."""

_FORM = re.compile(r"(?P<value>.+) \((?P<low>.+) to (?P<high>.+)\)")


class Timing(NamedTuple):
    """A value with its interval, in the base unit."""

    value: float
    low: float
    high: float


def parse_timing(text: str) -> Timing:
    """Return the timing that a text such as "5.2 ms (5.0 ms to 5.4 ms)" says.

    Raises ValueError.
    """
    found = _FORM.fullmatch(text)
    if found:
        for unit in TIMED.values():
            try:
                numbers = [parse_quantity(part, unit) for part in found.groups()]
            except ValueError:
                continue  # of another unit
            return Timing(*numbers)
    raise ValueError(f"{text!r} is no timing; write one as in '5.2 ms (5.0 ms to 5.4 ms)'")


def _checked(text: str) -> str:
    parse_timing(text)
    return text


TimingText = Annotated[str, AfterValidator(_checked)]


def timings_of(estimates: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each timing among the estimates of an item's results.

    Estimates without an interval, for which too little was measured, are left out.
    """
    for name, unit in TIMED.items():
        estimate = estimates.get(name, {})
        numbers = [estimate.get(key) for key in Timing._fields]
        if all(map(_is_finite, numbers)):
            value, low, high = (_rounded(number, unit) for number in numbers)
            yield name, f"{value} ({low} to {high})"


def _is_finite(number: Any) -> bool:
    return isinstance(number, (int, float)) and math.isfinite(number)


def _rounded(value: Any, unit: str) -> str:
    """Return a number with three digits and its unit; those of rates don't depend on the size."""
    if unit == "/s":
        value = float(f"{value:.3g}")
    return format_quantity(value, unit).replace(",", "")


def is_noise(old: str, new: str, tolerance: float = TOLERANCE) -> bool:
    """Return whether a change of a timing is noise: the new interval meets the old one, widened.

    The ends of the old interval are moved by ``tolerance``, a share of them.
    """
    before = parse_timing(old)
    now = parse_timing(new)
    low = before.low * (1 - tolerance)
    high = before.high * (1 + tolerance)
    return now.low <= high and low <= now.high


def is_sharper(old: str, new: str) -> bool:
    """Return whether a new timing's interval is less than half as wide as the old one."""
    before = parse_timing(old)
    now = parse_timing(new)
    return 2 * (now.high - now.low) < before.high - before.low


_NUMBER = re.compile(r" \((?P<number>\d+)\)$")


class NamedSoftware(NamedTuple):
    """The name of a stack, and its software."""

    name: str
    software: LockedStack


def stack_name(key: str) -> str:
    """Return the name of a stack, without the number that its key has."""
    return _NUMBER.sub("", key)


def keys_of(
    used: Iterable[NamedSoftware], old: Mapping[str, LockedStack]
) -> dict[NamedSoftware, str]:
    """Return the key of each software: "name", "name (2)" and so on.

    The softwares of ``old`` stay in their order, so that items which keep theirs keep their lines.
    """
    numbers = _old_numbers(old)
    new = max(numbers.values(), default=0) + 1

    def order(named: NamedSoftware) -> tuple[object, ...]:
        software = named.software
        number = numbers.get(named, new)
        return (number, named.name, software.python, software.packages, software.variables)

    counts: Counter[str] = Counter()
    keys = {}
    for named in sorted(set(used), key=order):
        name = named.name
        counts[name] += 1
        keys[named] = _key(name, counts[name])
    return keys


def _key(name: str, number: int) -> str:
    if number == 1:
        return name
    return f"{name} ({number})"


def _old_numbers(stacks: Mapping[str, LockedStack]) -> dict[NamedSoftware, int]:
    numbers = {}
    for key, software in stacks.items():
        named = NamedSoftware(stack_name(key), software)
        numbers[named] = _number_of(key)
    return numbers


def _number_of(key: str) -> int:
    found = _NUMBER.search(key)
    if found is None:
        return 1
    return int(found["number"])


FORMAT = 1
"""The format of the file: raised when an older pytest-mlms would misread it."""

_DIGITS = 16  # of a digest: 64 bits tell two files apart; the manifest has all of them

_DIGEST = re.compile(rf"[0-9a-f]{{{_DIGITS}}}")


def _checked_digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is no digest; write {_DIGITS} hexadecimal digits")
    return text


def _checked_variable(text: str) -> str:
    if "=" not in text.lstrip("="):
        raise ValueError(f"{text!r} is no variable; write NAME=VALUE")
    return text


_Digest = Annotated[str, AfterValidator(_checked_digest)]
_Variable = Annotated[str, AfterValidator(_checked_variable)]
_Count = Annotated[int, Field(ge=0)]


def short_digest(sha256: str) -> str:
    """Return the part of a digest that a lock has."""
    return sha256.removeprefix("sha256:")[:_DIGITS]


class LockedStack(Closed):
    """The exact software of a stack: its Python, and its packages in order, a line each.

    ``variables`` are those of the caller that change what is measured, as NAME=VALUE.
    """

    python: str
    packages: Annotated[tuple[str, ...], BeforeValidator(as_tuple)]
    variables: Annotated[tuple[_Variable, ...], BeforeValidator(as_tuple)] = ()


class LockedItem(Closed):
    """An item: the key of its stack, the files that it used, and its answers.

    ``variant`` is that of its model, "" where it has none, and in locks of earlier versions.
    ``predictions`` is the digest of the answers, of which ``right`` of ``inputs`` are right.
    ``accuracy`` has the quantities of a task without right answers. ``layers`` is the digest of the
    names and types of the traced layers, and ``definition`` that of what the item measures.
    """

    stack: str
    manifest: str
    framework: str
    device: str
    variant: str = ""
    model: dict[str, _Digest]
    dataset: _Digest | None = None
    predictions: _Digest | None = None
    right: _Count | None = None
    inputs: _Count | None = None
    accuracy: dict[str, float] = Field(default={})
    layers: _Digest | None = None
    definition: _Digest | None = None


Timings = dict[str, dict[str, dict[str, TimingText]]]
"""Class of the machine -> node id -> quantity -> timing."""


class Lock(Closed):
    """A lock file: stacks by key, items by node id, and advisory timings by class of machine."""

    format: int = FORMAT
    stacks: dict[str, LockedStack] = Field(default={})
    items: dict[str, LockedItem] = Field(default={})
    timings: Timings = Field(default={})
