"""Text of the inputs that a model is most wrong about, and of those that a candidate made worse."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_mlms.core.text import shortened
from pytest_mlms.measure.evaluate.tasks.task import Array, Evidence

if TYPE_CHECKING:
    from pytest_mlms.measure.pipeline import Dataset

_MOST_SHOWN = 5  # inputs
_MOST_COLUMNS = 5
_LONGEST_VALUE = 60  # characters
_NOTHING = "(none)"
"""Shown for an empty text, and where no object was found."""

Columns = Mapping[str, Sequence[Any]]


def worst_inputs(evidence: Evidence, dataset: Dataset) -> list[str]:
    """Return a line for each of the worst inputs: its file or row, its label, what was predicted.

    There are none where no input is wrong.
    """
    return _lines(largest_losses(evidence.losses), evidence, evidence, dataset)


def worse_inputs(baseline: Evidence, candidate: Evidence, dataset: Dataset) -> list[str]:
    """Return a line for each of the inputs that got worst: what differs, before and after."""
    worst = largest_losses(candidate.losses - baseline.losses)
    return _lines(worst, baseline, candidate, dataset)


def flips_by_class(baseline: Evidence, candidate: Evidence) -> str:
    """Return how many inputs became wrong, and how many right, by the class of their label.

    "" where the task has no best class, or no input's answer changed so.
    """
    before, after = (evidence.shares.get("top1") for evidence in (baseline, candidate))
    if before is None or after is None or len(before) != len(after):
        return ""
    labels = np.asarray(candidate.columns().get("label", ()), dtype=object)
    texts = []
    for flipped, what in (
        (before & ~after, "right before and wrong now"),
        (after & ~before, "the other way round"),
    ):
        if flipped.any() and len(labels) == len(flipped):
            classes = Counter(map(str, labels[flipped]))
            most = [f"{name}: {count}" for name, count in classes.most_common(_MOST_SHOWN)]
            rest = ["…"] if len(classes) > _MOST_SHOWN else []
            texts.append(f"{int(flipped.sum()):,} {what} ({', '.join([*most, *rest])})")
    return ", ".join(texts)


def _lines(
    worst: Sequence[int], baseline: Evidence, candidate: Evidence, dataset: Dataset
) -> list[str]:
    """Return the lines of inputs; both sides may be the same."""
    if not worst:
        return []
    after = candidate.columns()
    before = after if baseline is candidate else baseline.columns()
    lines = []
    for index in worst:
        lines.append(f"{place_of(index, dataset)}: {_cells(index, before, after)}")
    return lines


def largest_losses(losses: Array, most: int = _MOST_SHOWN) -> list[int]:
    """Return the numbers of the largest losses above 0; NaN is the largest."""
    known = np.nan_to_num(losses, nan=np.inf)
    worst = np.argsort(-known, kind="stable")[:most]
    return [int(index) for index in worst if known[index] > 0]


def place_of(index: int, dataset: Dataset) -> str:
    """Return what a line calls an input: its file, or its row of the arrays."""
    if dataset.files is not None:
        return dataset.files[index]
    return f"row {index if dataset.numbers is None else dataset.numbers[index]}"


def _cells(index: int, before: Columns, after: Columns) -> str:
    cells = []
    for name, values in itertools.islice(after.items(), _MOST_COLUMNS):
        new = _short(values[index])
        old = _short(before[name][index]) if name in before else new
        cells.append(f"{name} {new}" if old == new else f"{name} {old} -> {new}")
    return ", ".join(cells)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return shortened(" ".join(str(value).split()), _LONGEST_VALUE) or _NOTHING
