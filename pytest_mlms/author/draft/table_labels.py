"""The target of a table as labels: numbers, or the numbers of classes in the model's order.

An order that is a guess is compared with the model's own answers.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.author.draft.table_files import ColumnsData
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.agent.signature import element_type_of

_SHOWN = 20  # names of classes in an error
_MOST_WHOLE = 2**53  # beyond which floats skip whole numbers
_TRUTHS = ("false", "true")
_BINARY = 2  # classes that one number tells
_MOST_ROWS = 300
_MOST_TRIED = 6  # classes of which all orders are tried
_LEAST_MENDED = 0.5  # of the rows that are wrong
_DEVIATIONS = 3  # of the sign test between two orders


@dataclass(frozen=True)
class Classes:
    """The classes of the model in the order of its scores, and where they are from.

    ``names`` is empty where nothing tells them, and ``count`` is then None or their number.
    ``has_scores`` is false for a model that gives the class itself, and ``has_classes`` for one
    that gives a number, by which there are two classes at most.
    """

    names: Sequence[str]
    source: str
    count: int | None
    has_scores: bool
    has_classes: bool = True

    @property
    def are_numbers(self) -> bool:
        """True if there are names, and all are whole numbers."""
        return bool(self.names) and all(name.lstrip("-").isdecimal() for name in self.names)

    def without_names(self) -> Classes:
        """Return the classes of which only the number is known."""
        return replace(self, names=[], count=len(self.names) or self.count)


def may_give_classes(gives: Sequence[Tensor]) -> bool:
    """Return whether an output may tell a class: all but those of one real number an input do."""
    for tensor in gives:
        is_one_number = tensor.shape and tensor.shape[1:] in ((), (1,))
        if not is_one_number or not tensor.dtype.startswith("float"):
            return True
    return not gives


def count_of_scores(gives: Sequence[Tensor]) -> tuple[int | None, bool]:
    """Return how many scores an input has by the outputs' shapes, and whether it has any."""
    has_scores = False
    for tensor in gives:
        if tensor.dtype.startswith(("float", "uint8", "int8")) and len(tensor.shape) > 1:
            last = tensor.shape[-1]
            if last is not None and last > 1:
                return last, True
            has_scores = has_scores or last is None
    return None, has_scores


def labels_of(data: ColumnsData, targets: Sequence[str], classes: Classes) -> tuple[Array, str]:
    """Return the labels of the rows, and how classes were numbered, "" for plain numbers.

    Several targets are rows of numbers. Raises MlmsError, which names the line.
    """
    if len(targets) > 1:
        return np.stack([_numbers(data, name) for name in targets], axis=1), ""
    name = targets[0]
    cells = data.columns[name]
    kind = data.kind(name)
    are_names = set(cells) <= set(classes.names)
    if kind == "dates":
        problem = f"{data.path}: {data.shown(name)}, the target, has dates such as {cells[0]!r}"
        raise MlmsError(f"{problem}; name another target: --target NAME")
    if kind == "truths" and not are_names:
        return np.array([_TRUTHS.index(cell.lower()) for cell in cells]), "False is 0, True is 1"
    if kind == "texts" and not classes.has_classes and len(set(cells)) > _BINARY:
        problem = f"{data.path}:{data.lines[0]}: {data.shown(name)}, the target, is {cells[0]!r}"
        advice = "write numbers without signs and units, or name another target: --target NAME"
        raise MlmsError(f"{problem}, and the model gives one number; {advice}")
    if kind != "numbers" or (are_names and not classes.are_numbers):
        return _of_names(data, name, classes)
    if not classes.are_numbers:
        classes = classes.without_names()
    return _of_numbers(_numbers(data, name), cells, classes)


def _numbers(data: ColumnsData, name: str) -> Array:
    advice = "; correct it, or leave the row out"
    return np.array(data.numbers(name, advice, ", the target"), np.float64)


def _of_numbers(numbers: Array, cells: Sequence[str], classes: Classes) -> tuple[Array, str]:
    """Return numbers as they are, or as the places of the model's classes of other numbers.

    Whole numbers that are written without a point are of a whole type.
    """
    is_whole = (np.floor(numbers) == numbers) & (abs(numbers) < _MOST_WHOLE)
    if not is_whole.all():
        return numbers, ""
    found = np.unique(numbers)
    known = np.array([float(name) for name in classes.names])
    if classes.has_scores and len(known) and set(found) <= set(known):
        if not np.array_equal(known, np.arange(len(known))):
            order = np.argsort(known)
            places = order[np.searchsorted(known, numbers, sorter=order)]
            names = _listed(classes.names)
            return places, f"{names} are the columns 0, 1 …, as {classes.source} has"
    elif classes.has_scores and len(found) == classes.count:
        reason = ""
        if not np.array_equal(found, np.arange(len(found))):
            names = _listed([f"{number:g}" for number in found])
            reason = f"{names} are the columns 0, 1 …, in this order"
        return np.searchsorted(found, numbers), reason
    has_points = any("." in cell or "e" in cell.lower() for cell in cells)
    return (numbers if has_points else numbers.astype(np.int64)), ""


def _of_names(data: ColumnsData, name: str, classes: Classes) -> tuple[Array, str]:
    """Return the place of each class among the model's, or else in the order of all names."""
    cells = data.columns[name]
    found = sorted(set(cells))
    given = list(range(len(found)))  # the numbers of the classes in their order
    if classes.are_numbers and not set(found) <= set(classes.names):
        if len(classes.names) == len(found) and not classes.has_scores:
            given = [int(known) for known in classes.names]  # as the model gives them
        classes = classes.without_names()
    names = list(classes.names)
    reason = f"as {classes.source} has them"
    if not names:
        names, reason = found, "in this order, as scikit-learn numbers them"
        if classes.count not in (None, len(found)):
            problem = f"{data.path}: {data.shown(name)}, the target, has {len(found)} classes"
            advice = "name the file with the model's, one a line in its order: --labels FILE"
            shown = _listed(found)
            raise MlmsError(f"{problem} ({shown}), and the model {classes.count}; {advice}")

    numbers = _places(data, name, names, classes.source)
    if given == list(range(len(given))):
        return numbers, f"{_listed(names)} are 0, 1 …, {reason}"
    shown = _listed([str(number) for number in given])
    return np.array(given, np.int64)[numbers], f"{_listed(names)} are {shown}, {reason}"


def _places(data: ColumnsData, name: str, names: Sequence[str], source: str) -> Array:
    """Return the place in ``names`` of each cell, as it is written or else in any case.

    Raises MlmsError for the first that has none.
    """
    cells = data.columns[name]
    places = {known: place for place, known in enumerate(names)}
    in_any_case = {known.casefold(): place for place, known in enumerate(names)}
    if len(in_any_case) == len(names):
        for cell in set(cells):
            place = in_any_case.get(cell.casefold())
            if place is not None:
                places[cell] = place
    for cell, line in zip(cells, data.lines, strict=True):
        if cell not in places:
            problem = f"{data.path}:{line}: {data.shown(name)}, the target, is {cell!r}"
            advice = "correct it, or name the classes in the order of the scores: --labels FILE"
            known = _listed(names)
            raise MlmsError(f"{problem}, and {source} has the classes {known}; {advice}")
    return np.array([places[cell] for cell in cells], np.int64)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} …" if len(names) > _SHOWN else shown


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
    count = min(len(labels), _MOST_ROWS)
    rows = np.linspace(0, len(labels) - 1, count).astype(int)
    some = {name: array[rows] for name, array in inputs.items()}
    for output in _outputs(some, predictor):
        found, classes = _answers_of(output, data.kind(target) == "texts")
        wanted = labels[rows][: len(found)]
        if not classes or min(found.min(), wanted.min()) < 0 or wanted.max() >= classes:
            continue
        places = _best_places(wanted, found, classes)
        before = wanted == found
        after = places[wanted] == found
        gained = int((after & ~before).sum())
        lost = int((before & ~after).sum())
        is_sure = gained - lost > _DEVIATIONS * math.sqrt(gained + lost)
        if is_sure and gained - lost >= _LEAST_MENDED * (~before).sum():
            shares = float(before.mean()), float(after.mean())
            _refuse(data, target, labels, places, shares)


def _answers_of(output: Array, are_texts: bool) -> tuple[Array, int]:
    """Return the class of each row by an output, and the number of classes; 0 where it has none.

    Whole numbers are classes for sure only where these are texts in the table.
    """
    if output.dtype.kind == "f" and output.ndim == 2 and output.shape[1] > 1:
        return output.argmax(axis=1), output.shape[1]
    if are_texts and output.dtype.kind in "iu" and output.size == len(output):
        return output.ravel(), int(output.max()) + 1
    return output, 0


def _outputs(inputs: Mapping[str, Array], predictor: Predictor) -> list[Array]:
    """Return the outputs for as many rows as fill batches; none for a model that doesn't run."""
    size = 0
    for tensor in predictor.inputs:
        if element_type_of(inputs[tensor.name]) != tensor.dtype:
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
    found = []
    for name, rows in calls[0].items() if calls else ():
        if rows.shape[:1] == (size,):
            found.append(np.concatenate([call[name] for call in calls]))
    return found


def _best_places(wanted: Array, found: Array, count: int) -> Array:
    """Return the column for each class by which most rows are right."""
    rows = np.zeros((count, count), int)
    np.add.at(rows, (wanted, found), 1)
    if count <= _MOST_TRIED:
        orders = [list(order) for order in itertools.permutations(range(count))]
        right = [int(rows[range(count), order].sum()) for order in orders]
        return np.array(orders[int(np.argmax(right))])
    places = np.full(count, -1)
    for cell in np.argsort(-rows, axis=None, kind="stable"):
        label, place = divmod(int(cell), count)
        if places[label] < 0 and place not in places:
            places[label] = place
    return places


def _refuse(
    data: ColumnsData, target: str, labels: Array, places: Array, shares: tuple[float, float]
) -> None:
    """Raise MlmsError with another order; ``shares`` of the rows are right in both of them."""
    names = [str(number) for number in range(len(places))]
    for cell, label in zip(data.columns[target], labels, strict=True):
        names[label] = cell
    order = [names[label] for label in np.argsort(places)]
    known, right = (format_quantity(share, "fraction") for share in shares)
    problem = f"{data.path}: the model's scores are in another order than the classes of"
    problem += f" {data.shown(target)}: {known} of the rows are right, and {right} in the order"
    advice = f"see whether that is the model's, and name it: printf '%s\\n' {shlex.join(order)}"
    raise MlmsError(f"{problem} {_listed(order)}; {advice} > labels.txt, and --labels labels.txt")
