"""View of a classification's mistakes: which classes were taken for which, by predictions.csv."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pytest_mlms.show.pages.item import ItemView

_COLUMNS = ("label", "class_1")
_MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class Mistake:
    """The number of inputs of a class that were taken for another one."""

    label: str
    best: str
    count: int


@dataclass(frozen=True)
class Confusion:
    """The number of inputs by label and best class, for classes that are a label or a best class.

    ``classes`` come in the order of labels that are numbers, else by name.
    """

    classes: Sequence[str]
    counts: Mapping[tuple[str, str], int]

    @property
    def wrong(self) -> int:
        """The number of inputs whose best class is not the label."""
        return sum(mistake.count for mistake in self._mistakes())

    def top_mistakes(self, most: int) -> Sequence[Mistake]:
        """Return the most frequent mistakes."""
        ordered = sorted(self._mistakes(), key=_by_frequency)
        return ordered[:most]

    def _mistakes(self) -> Iterator[Mistake]:
        for (label, best), count in self.counts.items():
            if label != best:
                yield Mistake(label, best, count)


def _by_frequency(mistake: Mistake) -> tuple[int, str, str]:
    return -mistake.count, mistake.label, mistake.best


def read_confusion(item: ItemView) -> Confusion | None:
    """Return the mistakes of an item; None where it has no classes or its file is damaged."""
    path = item.artifact("predictions.csv")
    if path is None:
        return None
    try:
        counts = _counts_of(path)
    except (OSError, ValueError, csv.Error):
        return None
    if not counts:
        return None
    classes = {name for pair in counts for name in pair}
    return Confusion(sorted(classes, key=_order), counts)


def _counts_of(path: Path) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if not set(_COLUMNS) <= set(header):
            return counts
        label, best = map(header.index, _COLUMNS)
        for row in islice(rows, _MOST_ROWS):
            if len(row) != len(header):
                break
            counts[row[label], row[best]] += 1
    return counts


def _order(name: str) -> tuple[int, str]:
    """Return the sort key of a class: numbers first, in their order."""
    if name.isdecimal() and len(name) < 10:
        return int(name), ""
    return 10**10, name
