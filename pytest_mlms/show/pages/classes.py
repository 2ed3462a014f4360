"""View of what was found of each class of objects or pixels, by classes.csv."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence

from pytest_mlms.measure.evaluate.tasks.task import ClassCounts
from pytest_mlms.show.pages.item import ItemView

_MOST_ROWS = 20_000


def read_classes(item: ItemView) -> Sequence[ClassCounts]:
    """Return the classes of an item; none where the file is missing or damaged."""
    path = item.artifact("classes.csv")
    if path is None:
        return []
    counts = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in itertools.islice(csv.DictReader(file), _MOST_ROWS):
                numbers = (int(row["labelled"]), int(row["right"]), int(row["wrong"]))
                counts.append(ClassCounts(row["name"], *numbers))
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        return []
    return counts


def worst_classes(classes: Sequence[ClassCounts], most: int) -> Sequence[ClassCounts]:
    """Return the classes with the most objects or pixels that are missed or wrong."""
    ordered = sorted(classes, key=lambda each: each.right - each.labelled - each.wrong)
    return ordered[:most]
