"""Sections of accuracy: intervals against limits, mistakes by class, and the worst inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from markupsafe import Markup

from pytest_mlms.show.pages.canvas import Figure
from pytest_mlms.show.pages.classes import read_classes, worst_classes
from pytest_mlms.show.pages.confusion import read_confusion
from pytest_mlms.show.pages.examples import Example, Examples, read_examples
from pytest_mlms.show.pages.intervals_chart import intervals_charts
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.matrix import confusion_matrix
from pytest_mlms.show.pages.mistakes import classes_chart, mistakes_chart
from pytest_mlms.show.pages.section import FIGURES, Context, Section
from pytest_mlms.show.pages.thumbnails import thumbnail
from pytest_mlms.show.pages.waveforms import waveform_chart

_MOST_CLASSES = 12  # of a matrix
_MOST_BARS = 12
_OUTCOMES = ("found", "missed", "wrong")
_BOXES = "Dashed yellow boxes are labels; detections are green where right, red where wrong."
_MASKS = "Pixels in red are wrong, pixels of objects in green are right."
_INSTANCES = "Each detected instance has a colour of its own; the labels are outlined in yellow."
_CLASSES_CAPTION = "labelled objects or pixels that are found and missed, and those found wrongly"


class ShownExample(NamedTuple):
    """One of the worst inputs, as the template shows it: its picture, None without one."""

    example: Example
    picture: Markup | None
    summary: str


def intervals(item: ItemView) -> Context | None:
    """Return the estimates with their limits."""
    charts = intervals_charts(item.estimates, item.limits)
    if not charts:
        return None
    return {"figures": [Figure(caption, svg) for caption, svg in charts]}


def mistakes(item: ItemView) -> Context | None:
    """Return which classes are taken for which; None where no input is wrong."""
    classes = worst_classes(read_classes(item), _MOST_BARS)
    if classes:
        return {"figures": [Figure(_CLASSES_CAPTION, classes_chart(classes))]}
    confusion = read_confusion(item)
    if confusion is None or not confusion.wrong:
        return None
    frequent = confusion.top_mistakes(_MOST_BARS)
    shown = sum(mistake.count for mistake in frequent)
    inputs = sum(confusion.counts.values())
    caption = (
        f"{confusion.wrong:,} of {inputs:,} inputs are wrong; label → best class of the most "
        f"frequent mistakes, {shown:,} of them"
    )
    figures = [Figure(caption, mistakes_chart(confusion))]
    if len(confusion.classes) <= _MOST_CLASSES:
        figures.append(Figure("inputs by label and best class", confusion_matrix(confusion)))
    return {"figures": figures}


def worst_inputs(item: ItemView) -> Context | None:
    """Return the worst inputs, with pictures where they are kept."""
    found = read_examples(item)
    if found is None:
        return None
    return {"found": found, "shown": list(_shown(item, found)), "legend": _legend(found)}


def _shown(item: ItemView, found: Examples) -> Iterator[ShownExample]:
    for example in found.examples:
        path = item.artifact(example.picture) if example.picture else None
        summary = _summary(example)
        label = f"{example.name}: {summary}"
        picture = None if path is None else thumbnail(path, example.boxes, label)
        if example.waveform is not None:
            picture = waveform_chart(example.waveform, label)
        yield ShownExample(example, picture, summary)


def _summary(example: Example) -> str:
    """Return prediction against truth in a line."""
    columns = example.columns
    if "class_1" in columns and "label" in columns:
        score = columns.get("probability_1") or columns.get("score_1") or ""
        best = f"predicted {columns['class_1']}"
        if score:
            best = f"{best} ({_value(score)})"
        return f"label {columns['label']}, {best}"
    if "detections" in columns:
        return _of_objects(columns)
    return ", ".join(f"{name} {_value(value)}" for name, value in columns.items())


def _of_objects(columns: Mapping[str, str]) -> str:
    """Return how many objects are found and missed, and how many detections are wrong."""
    objects = columns["objects"]
    noun = "object" if objects == "1" else "objects"
    counts = [f"{columns[name]} {name}" for name in _OUTCOMES if columns[name] != "0"]
    return f"{objects} {noun}: {', '.join(counts)}"


def _value(text: str) -> str:
    """Return a cell, a number with three digits."""
    try:
        return f"{float(text):.3g}"
    except ValueError:
        return text or "(none)"


def _legend(found: Examples) -> str:
    """Return what colours on the pictures mean; "" where there are none."""
    parts = []
    if any(example.boxes for example in found.examples):
        parts.append(_BOXES)
    if any(example.has_instances for example in found.examples):
        parts.append(_INSTANCES)
    elif any(example.has_masks for example in found.examples):
        parts.append(_MASKS)
    return " ".join(parts)


_INTERVALS = Section("Accuracy against its limits", FIGURES, intervals)

ACCURACY = [
    _INTERVALS,
    Section("Worst inputs", "_worst_inputs.html", worst_inputs),
    Section("Mistakes by class", FIGURES, mistakes),
]
"""Sections of items of accuracy."""

AGREEMENT = [Section("Agreement against its limits", FIGURES, intervals)]
"""Sections of items of agreement."""
