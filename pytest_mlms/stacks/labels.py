"""Labels that hosts carry, as the stacks of a run.

Gpu=new-driver is whatever is on the hosts that are called so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_mlms.records import Stack

__all__ = ["VISITS", "is_label", "label_of", "side_stacks", "visit_of"]

VISITS = 3
"""How often each case is measured on each side."""

_LABEL = re.compile(r"([A-Za-z][\w.-]*)=([\w.+-]+)")
_VISIT = re.compile(r"(.*)#(\d+)")


def is_label(word: str) -> bool:
    """Whether the word of --mlms-stack or --mlms-against is a label of hosts: gpu=new-driver."""
    return _LABEL.fullmatch(word) is not None


def side_stacks(words: Sequence[str]) -> list[Stack]:
    """Return a stack for each visit of each label.

    The workers' own interpreter, on hosts that carry the label.
    """
    return [
        Stack(f"{word}#{visit}", "", interpreter="current")
        for visit in range(1, VISITS + 1)
        for word in words
    ]


def label_of(stack: str) -> tuple[str, str] | None:
    """Return the label that a stack stands for."""
    found = _LABEL.fullmatch(_VISIT.sub(r"\1", stack))
    return (found[1], found[2]) if found else None


def visit_of(stack: str) -> int:
    """Return which visit of a side a stack stands for, 0 for a stack that isn't one."""
    found = _VISIT.fullmatch(stack)
    return int(found[2]) if found and label_of(stack) else 0
