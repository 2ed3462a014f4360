"""Mistakes by class: which classes were taken for which, and what was found of each.

predictions.csv has the classes of a classification, classes.csv those of objects or pixels. A file
that is missing or damaged says nothing.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from markupsafe import Markup

from pytest_mlms.core.text import shortened
from pytest_mlms.measure.evaluate.tasks.task import ClassCounts
from pytest_mlms.show.pages.canvas import Context, Figure, Plot, around
from pytest_mlms.show.pages.drawing import (
    WIDTH,
    Axis,
    element,
    filled,
    linear_scale,
    picture,
    rows_axis,
    whole_number,
    words,
)
from pytest_mlms.show.pages.item import ItemView

_COLUMNS = ("label", "class_1")
_MOST_ROWS = 1_000_000  # of predictions.csv
_MOST_CLASSES = 20_000  # of classes.csv
_MOST_BARS = 12
_LARGEST_MATRIX = 12  # classes
_LONGEST_NAME = 14  # characters of a class
_HALF = 0.34  # of a bar's height, in rows
_PARTS = {"found": "good", "missed": "muted", "wrong": "bad"}
"""The parts of a bar from the left, with their paints."""

_SPOKEN = 5  # classes that are told to screen readers
_TOP = 34.0  # of the first row of a matrix, below the names of the columns
_LARGEST_CELL = 40.0
_CHARACTER = 7.1  # the width of one in a matrix
_OPACITIES = {"good": (0.12, 0.5), "bad": (0.3, 0.4)}
"""Paint of a cell -> its opacity for no input, and what the highest count adds."""


@dataclass(frozen=True)
class Mistake:
    """The number of inputs of a class that were taken for another one."""

    label: str
    best: str
    count: int

    @property
    def text(self) -> str:
        """The mistake in words."""
        noun = "input" if self.count == 1 else "inputs"
        return f"{self.count:,} {noun} of class {self.label} taken for {self.best}"


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
        by_frequency = sorted(self._mistakes(), key=lambda one: (-one.count, one.label, one.best))
        return by_frequency[:most]

    def _mistakes(self) -> Iterator[Mistake]:
        for (label, best), count in self.counts.items():
            if label != best:
                yield Mistake(label, best, count)


def mistakes_section(item: ItemView) -> Context | None:
    """Return which classes are taken for which; None where no input is wrong."""
    classes = worst_classes(read_classes(item), _MOST_BARS)
    if classes:
        caption = "labelled objects or pixels that are found and missed, and those found wrongly"
        return {"figures": [Figure(caption, classes_chart(classes))]}

    confusion = read_confusion(item)
    if confusion is None or not confusion.wrong:
        return None
    shown = sum(mistake.count for mistake in confusion.top_mistakes(_MOST_BARS))
    inputs = sum(confusion.counts.values())
    caption = (
        f"{confusion.wrong:,} of {inputs:,} inputs are wrong; label → best class of the most "
        f"frequent mistakes, {shown:,} of them"
    )
    figures = [Figure(caption, mistakes_chart(confusion))]
    if len(confusion.classes) <= _LARGEST_MATRIX:
        figures.append(Figure("inputs by label and best class", confusion_matrix(confusion)))
    return {"figures": figures}


def read_classes(item: ItemView) -> Sequence[ClassCounts]:
    """Return the classes of an item; none where the file is missing or damaged."""
    path = item.artifact("classes.csv")
    if path is None:
        return []
    counts = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in islice(csv.DictReader(file), _MOST_CLASSES):
                numbers = (int(row["labelled"]), int(row["right"]), int(row["wrong"]))
                counts.append(ClassCounts(row["name"], *numbers))
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return []
    return counts


def worst_classes(classes: Sequence[ClassCounts], most: int) -> Sequence[ClassCounts]:
    """Return the classes with the most objects or pixels that are missed or wrong."""
    ordered = sorted(classes, key=lambda each: each.right - each.labelled - each.wrong)
    return ordered[:most]


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
    return Confusion(sorted(classes, key=_numbers_first), counts)


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


def _numbers_first(name: str) -> tuple[int, str]:
    """Return the sort key of a class: numbers first, in their order."""
    if name.isdecimal() and len(name) < 10:
        return int(name), ""
    return 10**10, name


def mistakes_chart(confusion: Confusion, most: int = _MOST_BARS) -> Markup:
    """Return a bar for each of the most frequent mistakes: label, best class, inputs."""
    mistakes = confusion.top_mistakes(most)
    plot = Plot(
        "; ".join(each.text for each in mistakes),
        Axis("inputs", linear_scale([each.count for each in mistakes], zero=True), whole_number),
        rows_axis([f"{_short(each.label)} → {_short(each.best)}" for each in mistakes]),
    )
    for row, each in enumerate(mistakes):
        plot.bar((0, each.count), around(row, _HALF), "b", each.text)
        plot.beside(each.count, row, f"{each.count:,}")
    return plot.svg()


def classes_chart(classes: Sequence[ClassCounts]) -> Markup:
    """Return what was found, missed and wrong of each class, in this order from the left."""
    titles = [_of_class(each) for each in classes]
    ends = [each.labelled + each.wrong for each in classes]
    plot = Plot(
        "; ".join(titles[:_SPOKEN]),
        Axis("objects or pixels", linear_scale(ends, zero=True), whole_number),
        rows_axis([_short(each.name) for each in classes]),
    )
    for row, each in enumerate(classes):
        counts = {"found": each.right, "missed": each.labelled - each.right, "wrong": each.wrong}
        begin = 0
        for name, count in counts.items():
            end = begin + count
            if count:
                plot.bar((begin, end), around(row, _HALF), _PARTS[name], titles[row])
            begin = end
    for name, paint in _PARTS.items():
        plot.legend(name, paint)
    return plot.svg()


def _of_class(each: ClassCounts) -> str:
    missed = each.labelled - each.right
    return f"{each.name}: {each.right:,} found, {missed:,} missed, {each.wrong:,} wrong"


def _short(name: str) -> str:
    return shortened(name, _LONGEST_NAME)


def confusion_matrix(confusion: Confusion) -> Markup:
    """Return the number of inputs for each label, from the top, and each best class."""
    names = confusion.classes
    longest = max(map(len, [*names, "label"]))
    left = 14 + min(longest, _LONGEST_NAME) * _CHARACTER
    side = min((WIDTH - left - 4) / len(names), _LARGEST_CELL)
    most = max(int(side / _CHARACTER), 1)  # characters of a column

    parts = [
        words(left + side * len(names) / 2, 12, "best class", "middle", "muted"),
        words(left - 6, 28, "label", "end", "muted"),
    ]
    for column, name in enumerate(names):
        short = name if len(name) <= most else f"{name[: max(most - 1, 1)]}…"
        parts.append(words(left + (column + 0.5) * side, 28, short, "middle", "ink", name))
    for row, label in enumerate(names):
        top = _TOP + row * side
        parts.append(words(left - 6, top + side / 2 + 4, _short(label), "end", "ink"))
        for column, best in enumerate(names):
            parts += _cell(confusion, label, best, left + column * side, top, side)

    text = "; ".join(mistake.text for mistake in confusion.top_mistakes(3))
    height = _TOP + len(names) * side + 6
    return picture(f"labels against best classes: {text}", height, parts)


def _cell(
    confusion: Confusion, label: str, best: str, left: float, top: float, side: float
) -> Iterator[Markup]:
    """Yield a square that is the darker, the more inputs it has."""
    count = confusion.counts.get((label, best), 0)
    title = Mistake(label, best, count).text
    if label == best:
        verb = "input is" if count == 1 else "inputs are"
        title = f"{count:,} {verb} right of class {label}"
    square = {"x": left, "y": top, "width": side - 1, "height": side - 1}
    yield element("rect", title=title, **square, **filled("panel"))
    if not count:
        return
    paint = "good" if label == best else "bad"
    faintest, added = _OPACITIES[paint]
    opacity = faintest + added * count / max(confusion.counts.values())
    yield element("rect", opacity=f"{opacity:.2f}", title=title, **square, **filled(paint))
    yield words(left + side / 2, top + side / 2 + 4, f"{count:,}", "middle", "ink", title)
