"""Keys of stacks in a lock: the name, with a number where one name has several softwares."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pytest_mlms.keep.lockfile.lock import LockedStack

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
