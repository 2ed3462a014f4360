"""Charts of mistakes by class: classes that are taken for others, and what is found of each."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from pytest_mlms.core.text import shortened
from pytest_mlms.measure.evaluate.tasks.task import ClassCounts
from pytest_mlms.show.pages.canvas import Plot, around
from pytest_mlms.show.pages.confusion import Confusion, Mistake
from pytest_mlms.show.pages.scales import Axis, linear_scale, rows_axis, whole_number

_LONGEST_NAME = 14  # characters of a class
_HALF = 0.34  # of a bar's height, in rows
_PARTS = {"found": "good", "missed": "muted", "wrong": "bad"}
"""The parts of a bar from the left, with their paints."""

_SPOKEN = 5  # classes that are told to screen readers


def mistakes_chart(confusion: Confusion, most: int = 12) -> Markup:
    """Return a bar for each of the most frequent mistakes: label, best class, inputs."""
    mistakes = confusion.top_mistakes(most)
    counts = [each.count for each in mistakes]
    words = [mistake_text(each) for each in mistakes]
    names = [f"{_short(each.label)} → {_short(each.best)}" for each in mistakes]
    axis = _axis_of("inputs", counts)
    plot = Plot("; ".join(words), axis, rows_axis(names))
    for row, count in enumerate(counts):
        plot.bar((0, count), around(row, _HALF), "b", words[row])
        plot.beside(count, row, f"{count:,}")
    return plot.svg()


def _axis_of(title: str, counts: Sequence[int]) -> Axis:
    """Return the horizontal axis for these counts."""
    scale = linear_scale(counts, zero=True)
    return Axis(title, scale, whole_number)


def mistake_text(mistake: Mistake) -> str:
    """Return how many inputs of a class are taken for another one."""
    noun = "input" if mistake.count == 1 else "inputs"
    return f"{mistake.count:,} {noun} of class {mistake.label} taken for {mistake.best}"


def classes_chart(classes: Sequence[ClassCounts]) -> Markup:
    """Return what was found, missed and wrong of each class, in this order from the left."""
    words = [_of_class(each) for each in classes]
    names = [_short(each.name) for each in classes]
    ends = [each.labelled + each.wrong for each in classes]
    axis = _axis_of("objects or pixels", ends)
    label = "; ".join(words[:_SPOKEN])
    plot = Plot(label, axis, rows_axis(names))
    for row, each in enumerate(classes):
        _add_parts(plot, row, each, words[row])
    for name, paint in _PARTS.items():
        plot.legend(name, paint)
    return plot.svg()


def _add_parts(plot: Plot, row: int, each: ClassCounts, title: str) -> None:
    """Add a bar for each part that isn't empty."""
    missed = each.labelled - each.right
    counts = {"found": each.right, "missed": missed, "wrong": each.wrong}
    begin = 0
    for name, count in counts.items():
        end = begin + count
        if count:
            plot.bar((begin, end), around(row, _HALF), _PARTS[name], title)
        begin = end


def _of_class(each: ClassCounts) -> str:
    missed = each.labelled - each.right
    parts = [f"{each.right:,} found", f"{missed:,} missed", f"{each.wrong:,} wrong"]
    return f"{each.name}: {', '.join(parts)}"


def _short(name: str) -> str:
    return shortened(name, _LONGEST_NAME)
