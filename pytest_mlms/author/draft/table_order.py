"""The check that a model's scores fit the order given to the classes of a table."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.author.draft.table_files import ColumnsData
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused

Array = NDArray[Any]

_MOST_ROWS = 300
_MOST_TRIED = 6  # classes of which all orders are tried
_LEAST_MENDED = 0.5  # of the rows that are wrong
_DEVIATIONS = 3  # of the sign test between two orders
_SHOWN = 20  # names of classes in an error


def check_order(
    data: ColumnsData,
    target: str,
    labels: Array,
    inputs: Mapping[str, Array],
    predictor: Predictor,
) -> None:
    """Raise MlmsError where another order of the classes is surely right, with that order.

    ``labels`` are the numbers of the rows' classes (N), in an order that is a guess. A wrong one
    need not be below chance: the frequent classes may be in their places.
    """
    rows = np.linspace(0, len(labels) - 1, min(len(labels), _MOST_ROWS)).astype(int)
    outputs = _outputs({name: array[rows] for name, array in inputs.items()}, predictor)
    for found, count in _answers(outputs, has_texts=data.kind(target) == "texts"):
        wanted = labels[rows][: len(found)]
        if not len(wanted) or wanted.min() < 0 or wanted.max() >= count:
            continue
        places = _best_places(wanted, found, count)
        before, after = wanted == found, places[wanted] == found
        gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
        is_sure = gained - lost > _DEVIATIONS * math.sqrt(gained + lost)
        if is_sure and gained - lost >= _LEAST_MENDED * (~before).sum():
            _refuse(data, target, labels, places, float(before.mean()), float(after.mean()))


def _outputs(inputs: Mapping[str, Array], predictor: Predictor) -> list[Array]:
    """Return the outputs for as many rows as fill batches; none for a model that doesn't run."""
    size = 0
    for tensor in predictor.inputs:
        kind = inputs[tensor.name].dtype
        if ("string" if kind.kind == "U" else kind.name) != tensor.dtype:
            return []  # such as pixels, which steps make numbers of
        size = max(size, (tensor.shape or [None])[0] or 0)
    count = len(next(iter(inputs.values())))
    size = size or count
    calls = []
    try:
        for start in range(0, count - size + 1, size):
            batch = {name: array[start : start + size] for name, array in inputs.items()}
            calls.append(predictor.predict(batch))
    except (Refused, MlmsError):
        return []
    names = [name for name, rows in (calls[0].items() if calls else ()) if len(rows) == size]
    return [np.concatenate([call[name] for call in calls]) for name in names]


def _answers(outputs: Sequence[Array], has_texts: bool) -> list[tuple[Array, int]]:
    """Return the classes of the rows by each output that tells them, and how many there are.

    Whole numbers are classes for sure only where these have texts in the table.
    """
    found = []
    for rows in outputs:
        if rows.dtype.kind == "f" and rows.ndim == 2 and rows.shape[1] > 1:
            found.append((rows.argmax(axis=1), rows.shape[1]))
        elif has_texts and rows.dtype.kind in "iu" and rows.size == len(rows) and rows.min() >= 0:
            found.append((rows.ravel(), int(rows.max()) + 1))
    return found


def _best_places(wanted: Array, found: Array, count: int) -> Array:
    """Return the column for each class by which most rows are right."""
    rows = np.zeros((count, count), int)
    np.add.at(rows, (wanted, found), 1)
    every = np.arange(count)
    if count <= _MOST_TRIED:
        orders = itertools.permutations(range(count))
        return np.array(max(orders, key=lambda order: int(rows[every, list(order)].sum())))
    places = np.full(count, -1)
    for cell in np.argsort(-rows, axis=None, kind="stable"):
        label, place = divmod(int(cell), count)
        if places[label] < 0 and place not in places:
            places[label] = place
    return places


def _refuse(
    data: ColumnsData, target: str, labels: Array, places: Array, before: float, after: float
) -> None:
    names = [str(number) for number in range(len(places))]
    for cell, label in zip(data.columns[target], labels, strict=True):
        names[label] = cell
    order: Sequence[str] = [names[label] for label in np.argsort(places)]
    known, right = (format_quantity(share, "fraction") for share in (before, after))
    problem = f"{data.path}: the model's scores are in another order than the classes of"
    problem += f" {data.shown(target)}: {known} of the rows are right, and {right} in the order"
    shown = ", ".join(order[:_SHOWN]) + (" …" if len(order) > _SHOWN else "")
    advice = f"see whether that is the model's, and name it: printf '%s\\n' {shlex.join(order)}"
    raise MlmsError(f"{problem} {shown}; {advice} > labels.txt, and --labels labels.txt")
