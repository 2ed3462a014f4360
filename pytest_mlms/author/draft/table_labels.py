"""The target of a table as labels: numbers, or the numbers of classes in the model's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mlms_predictors import Tensor
from numpy.typing import NDArray

from pytest_mlms.author.draft.table_files import ColumnsData, as_number
from pytest_mlms.core.errors import MlmsError

Array = NDArray[Any]

_SHOWN = 20  # names of classes in an error
_MOST_WHOLE = 2**53  # beyond which floats skip whole numbers
_TRUTHS = ("false", "true")
_BINARY = 2  # classes that one number tells


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


def may_give_classes(gives: Sequence[Tensor]) -> bool:
    """Return whether an output may tell a class: all but those of one real number an input do."""
    return not gives or not all(
        tensor.dtype.startswith("float") and tensor.shape and tensor.shape[1:] in ((), (1,))
        for tensor in gives
    )


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
        rows = [_numbers(data, name) for name in targets]
        return np.stack(rows, axis=1).astype(np.float64), ""
    (name,) = targets
    kind = data.kind(name)
    cells = data.columns[name]
    if kind == "dates":
        problem = f"{data.path}: {data.shown(name)}, the target, has dates such as {cells[0]!r}"
        raise MlmsError(f"{problem}; name another target: --target NAME")
    if kind == "truths" and not _has(classes.names, cells):
        return np.array([_TRUTHS.index(cell.lower()) for cell in cells]), "False is 0, True is 1"
    if kind == "texts" and not classes.has_classes and len(set(cells)) > _BINARY:
        problem = f"{data.path}:{data.lines[0]}: {data.shown(name)}, the target, is {cells[0]!r}"
        advice = "write numbers without signs and units, or name another target: --target NAME"
        raise MlmsError(f"{problem}, and the model gives one number; {advice}")
    if kind != "numbers" or (_has(classes.names, cells) and not _is_number_of(classes.names)):
        return _of_names(data, name, classes)
    if classes.names and not _is_number_of(classes.names):
        classes = replace(classes, names=[], count=len(classes.names))
    return _of_numbers(_numbers(data, name), cells, classes)


def _has(names: Sequence[str], cells: Sequence[str]) -> bool:
    return set(cells) <= set(names)


def _is_number_of(names: Sequence[str]) -> bool:
    """Return whether the names of classes are numbers."""
    return all(name.lstrip("-").isdecimal() for name in names)


def _numbers(data: ColumnsData, name: str) -> Array:
    values = []
    for cell, line in zip(data.columns[name], data.lines, strict=True):
        try:
            values.append(as_number(cell))
        except ValueError as error:
            problem = f"{data.path}:{line}: {data.shown(name)}, the target: {error}"
            raise MlmsError(f"{problem}; correct it, or leave the row out") from error
    return np.array(values, np.float64)


def _of_numbers(numbers: Array, cells: Sequence[str], classes: Classes) -> tuple[Array, str]:
    """Return numbers as they are, or as the places of the model's classes of other numbers.

    Whole numbers that are written without a point are of a whole type.
    """
    are_whole = bool((np.floor(numbers) == numbers).all() and (abs(numbers) < _MOST_WHOLE).all())
    if not are_whole:
        return numbers, ""
    found = np.unique(numbers)
    known = np.array([float(name) for name in classes.names])
    if classes.has_scores and len(known) and set(found) <= set(known):
        if not np.array_equal(known, np.arange(len(known))):
            order = np.argsort(known)
            places = order[np.searchsorted(known, numbers, sorter=order)]
            return (
                places,
                f"{_listed(classes.names)} are the columns 0, 1 …, as {classes.source} has",
            )
    elif classes.has_scores and len(found) == classes.count:
        shown = _listed([f"{number:g}" for number in found])
        are_places = np.array_equal(found, np.arange(len(found)))
        reason = "" if are_places else f"{shown} are the columns 0, 1 …, in this order"
        return np.searchsorted(found, numbers), reason
    has_points = any("." in cell or "e" in cell.lower() for cell in cells)
    return (numbers if has_points else numbers.astype(np.int64)), ""


def _of_names(data: ColumnsData, name: str, classes: Classes) -> tuple[Array, str]:
    """Return the place of each class among the model's, or else in the order of all names."""
    cells = data.columns[name]
    found = sorted(set(cells))
    names = list(classes.names)
    reason = f"as {classes.source} has them"
    given = list(range(len(found)))
    if _is_number_of(names) and not _has(names, found):
        if len(names) == len(found) and not classes.has_scores:
            given = [int(known) for known in names]  # as the model gives them
        classes = replace(classes, names=[], count=len(names) or classes.count)
        names = []
    if not names:
        names, reason = found, "in this order, as scikit-learn numbers them"
        if classes.count is not None and len(found) != classes.count:
            problem = f"{data.path}: {data.shown(name)}, the target, has {len(found)} classes"
            advice = "name the file with the model's, one a line in its order: --labels FILE"
            shown = _listed(found)
            raise MlmsError(f"{problem} ({shown}), and the model {classes.count}; {advice}")
    places = _places(found, names)
    for cell, line in zip(cells, data.lines, strict=True):
        if cell not in places:
            problem = f"{data.path}:{line}: {data.shown(name)}, the target, is {cell!r}"
            advice = "correct it, or name the classes in the order of the scores: --labels FILE"
            known = _listed(names)
            raise MlmsError(f"{problem}, and {classes.source} has the classes {known}; {advice}")
    numbers = np.array([places[cell] for cell in cells], np.int64)
    if given != list(range(len(given))):
        shown = _listed([str(number) for number in given])
        return np.array(given, np.int64)[numbers], f"{_listed(names)} are {shown}, {reason}"
    return numbers, f"{_listed(names)} are 0, 1 …, {reason}"


def _places(found: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """Return the places of names, also of those that differ from one in the case of letters."""
    places = {known: place for place, known in enumerate(names)}
    in_any_case = {known.casefold(): place for place, known in enumerate(names)}
    if len(in_any_case) == len(names):
        alike = [cell for cell in found if cell.casefold() in in_any_case]
        places |= {cell: in_any_case[cell.casefold()] for cell in alike}
    return places


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} …" if len(names) > _SHOWN else shown
