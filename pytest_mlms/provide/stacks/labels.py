"""Labels of hosts used as stacks: gpu=new-driver is whatever such hosts have installed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from pytest_mlms.core.records import Stack

VISITS = 3
"""Number of times that each case is measured on each side."""

_LABEL = re.compile(r"([A-Za-z][\w.-]*)=([\w.+-]+)")
_VISIT = re.compile(r"(.*)#(\d+)")


class Label(NamedTuple):
    """A label of hosts, such as gpu=new-driver."""

    name: str
    value: str


def side_stacks(labels: Sequence[str]) -> list[Stack]:
    """Return a stack for each visit of each label.

    Each is the worker's own interpreter, on a host that carries the label.
    """
    stacks = []
    for visit in range(1, VISITS + 1):
        for label in labels:
            stack = Stack(f"{label}#{visit}", "", interpreter="current")
            stacks.append(stack)
    return stacks


def label_of(stack: str) -> Label | None:
    """Return the label that a stack's name has, None for other stacks."""
    text = _VISIT.sub(r"\1", stack)
    found = _LABEL.fullmatch(text)
    if found is None:
        return None
    return Label(found[1], found[2])


def visit_of(stack: str) -> int:
    """Return the number of the visit that a stack's name has, 0 for other stacks."""
    found = _VISIT.fullmatch(stack)
    if found is None or label_of(stack) is None:
        return 0
    return int(found[2])
