"""The columns of a table that are features, and the one that is the target.

What neither --target nor a name tells is told by the model: how many columns it takes, and whether
its outputs explain the first column or the last one.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.author.draft.axes import TEXTS
from pytest_mlms.author.draft.table_files import (
    ColumnsData,
    as_number,
    counted,
    is_missing,
    is_number,
)
from pytest_mlms.author.draft.table_labels import Classes
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.types import instead
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused

TARGETS = ("target", "label", "y", "class")
"""Names of the target, in letters of any case, also in the plural."""

_INDEX = re.compile(r"(unnamed: 0)?", re.IGNORECASE)
_ID = re.compile(r"(?i:unnamed: \d+|index|idx|row|nr|no|number|(.*[_ -])?id)?|.*[a-z]I[dD]")
_SHOWN = 12  # columns in an error
_MOST_ROWS = 300  # by which the fit of a column is judged
_BETTER = 0.1  # by which the first column must fit better than the last one


@dataclass(frozen=True)
class Roles:
    """The columns of each input by its name, the target, and why it is that one.

    There are several targets where a model gives several numbers, and none where a table has no
    labels. ``unused`` are the columns that are left.
    """

    features: Mapping[str, Sequence[str]]
    targets: Sequence[str]
    reason: str
    unused: Sequence[str] = ()


def width_of(tensor: Tensor) -> int | None:
    """Return how many numbers an input takes for an element, None where it takes any."""
    sizes = tensor.shape[1:]
    if not tensor.shape or None in sizes:
        return None
    return math.prod(size or 0 for size in sizes)


def find_roles(
    data: ColumnsData, predictor: Predictor, classes: Classes, target: Sequence[str]
) -> Roles:
    """Return the role of each column. Raises MlmsError where it can't be known, with what to do.

    ``target`` are the columns that the user calls so.
    """
    tensors = predictor.inputs
    for name in target:
        if name not in data.columns:
            advice = instead(name, data.names[:_SHOWN])
            raise MlmsError(f"{data.path} has no column {name!r}; {advice}")
    by_name = _columns_by_name(data, tensors, target)
    if by_name:
        return beside(data, by_name, target)
    if len(tensors) == 1:
        return _of_one_input(data, predictor, classes, target)
    raise _no_columns(data, tensors)


def _no_columns(data: ColumnsData, tensors: Sequence[Tensor]) -> MlmsError:
    """Return the error of a table whose columns aren't called like the inputs of a model."""
    missing = [tensor.name for tensor in tensors]
    if data.has_header:
        known = {_comparable(name) for name in data.names}
        missing = [name for name in missing if _comparable(name) not in known]
    names = ", ".join(tensor.name for tensor in tensors)
    if not data.has_header:
        problem = f"{data.path} has no names of columns, and the model has {len(tensors)} inputs"
        columns = ",".join(tensor.name for tensor in tensors)
        advice = f"write them into its first line: {columns},target"
    elif missing and all(width_of(tensor) == 1 for tensor in tensors):
        problem = f"{data.path} has no column {missing[0]!r}, which is an input of the model"
        advice = f"rename one of {_listed(data.names)}"
    else:
        problem = f"{data.path} is a table, and the model has the inputs {names} of several columns"
        advice = f"save them as arrays: numpy.savez(…, {tensors[0].name}=…, label=…)"
    return MlmsError(f"{problem}; {advice}")


def _columns_by_name(
    data: ColumnsData, tensors: Sequence[Tensor], targets: Sequence[str]
) -> dict[str, Sequence[str]]:
    """Return the column of each input that is called like it; nothing unless all have one.

    Names may differ in what is no letter or digit, and in the case of letters.
    """
    widths = [width_of(tensor) for tensor in tensors]
    if not data.has_header or not set(widths) <= {1, None} or widths == [None]:
        return {}
    names = [name for name in data.names if name not in targets]
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(_comparable(name), []).append(name)
    found: dict[str, Sequence[str]] = {}
    for tensor in tensors:
        same = alike.get(_comparable(tensor.name), [])
        if tensor.name in names:
            same = [tensor.name]
        if len(same) != 1:
            return {}
        found[tensor.name] = same
    return found


def _comparable(name: str) -> str:
    return re.sub(r"[\W_]+", "_", name).strip("_").casefold()


def beside(data: ColumnsData, features: Mapping[str, Sequence[str]], given: Sequence[str]) -> Roles:
    """Return the roles where the features are known by their names."""
    taken = set(itertools.chain.from_iterable(features.values()))
    rest = [name for name in data.names if name not in taken]
    targets, reason = list(given), "as --target says"
    if not targets:
        targets, reason = _by_usual_name(data, rest), "by its name"
    if not targets:
        targets = [name for name in rest if not _is_id(data, name)]
        reason = "the only other column that is no input"
    if not targets:
        problem = f"{data.path} has no column beside the inputs of the model"
        raise MlmsError(f"{problem}; add one with what is right, called target")
    if len(targets) > 1 and not given:
        problem = f"{data.path} has {_listed(targets)} beside the inputs of the model"
        raise MlmsError(f"{problem}; say which is the target: --target {_quoted(targets[-1])}")
    unused = [name for name in rest if name not in targets]
    return Roles(features, targets, reason, unused)


def _of_one_input(
    data: ColumnsData, predictor: Predictor, classes: Classes, given: Sequence[str]
) -> Roles:
    """Return the roles for a model with one input, which takes columns in their order."""
    tensor = predictor.inputs[0]
    width = width_of(tensor)
    names: Sequence[str] = data.names
    if names and data.has_header and _INDEX.fullmatch(names[0]):
        names = names[1:]
    targets, reason = list(given), "as --target says"
    if not targets:
        targets, reason = _by_usual_name(data, names), "by its name"
    if not targets:
        names = _without_others(data, names, width)
        texts = [name for name in names if _has_classes(data, name)]
        others_fit = width is None or len(names) == width + 1
        if len(texts) == 1 and others_fit and len(names) > 1 and tensor.dtype != TEXTS:
            targets, reason = texts, "the only one of texts"
        else:
            targets, reason = _last(data, names, predictor, classes)

    candidates = [name for name in names if name not in targets]
    kept = _fitting(data, candidates, width, tensor)
    unused = [name for name in data.names if name not in kept and name not in targets]
    return Roles({tensor.name: kept}, targets, reason, unused)


def _without_others(data: ColumnsData, names: Sequence[str], width: int | None) -> Sequence[str]:
    """Return columns without those of ids, and then of dates, where a model takes fewer."""
    ids = {name for name in names if _is_id(data, name)}
    dates = {name for name in names if data.kind(name) == "dates"}
    for others in (ids, dates):
        left = [name for name in names if name not in others]
        if width is not None and len(left) > width:
            names = left
    return names


def _has_classes(data: ColumnsData, name: str) -> bool:
    """Return whether a column has texts, and not numbers of which one is mistyped."""
    cells = data.columns[name]
    return data.kind(name) == "texts" and sum(map(is_number, cells)) < len(cells) / 2


def _by_usual_name(data: ColumnsData, names: Sequence[str]) -> list[str]:
    """Return the column that is called as targets are. Raises MlmsError where several are."""
    if not data.has_header:
        return []
    lower = {name: name.casefold().strip() for name in names}
    is_place = "x" in lower.values() and len(set(lower.values())) > len("xy")  # beside y
    found = []
    for name, word in lower.items():
        is_target = word in TARGETS or word.removesuffix("s") in TARGETS or word == "classes"
        if is_target and not (word == "y" and is_place):
            found.append(name)
    if len(found) > 1:
        problem = f"{data.path} has the columns {_listed(found)}, of which each may be the target"
        advice = f"say which it is, and which are no features: --target {_quoted(found[0])}"
        raise MlmsError(f"{problem}; {advice} {_without(found[1:])}")
    return found


def _last(
    data: ColumnsData, names: Sequence[str], predictor: Predictor, classes: Classes
) -> tuple[list[str], str]:
    """Return the columns behind the features, and why. Raises MlmsError where that isn't known.

    There are several only where the model has an output of as many numbers.
    """
    width = width_of(predictor.inputs[0])
    count = 1 if width is None else len(names) - width
    problem = f"{data.path} has {counted(len(names))}, and the model takes {width or 1}"
    if count < 1 or len(names) < 2:
        if count == 0:
            advice = "add one with what is right for each row, called target"
            raise MlmsError(f"{problem}, so that none is left for the target; {advice}")
        raise MlmsError(f"{problem}; name the table that it was trained on ({_listed(names)})")
    if count == 1:
        first, last = names[0], names[-1]
        by_first = _fit(data, predictor, classes, first)
        if by_first > 0 and by_first > _fit(data, predictor, classes, last) + _BETTER:
            return [first], "the first one: the model's outputs fit it, and not the last one"
        return [last], "the last one"
    behind = list(names[-count:])
    has_numbers = all(data.kind(name) == "numbers" for name in behind)
    if has_numbers and any(tensor.shape[1:] == (count,) for tensor in predictor.outputs):
        return behind, f"the last {count}, behind the {width} that the model takes"
    keys = [name for name in names[:-1] if _differs_in_each_row(data, name)]
    left_out = keys[: count - 1] if len(keys) >= count - 1 else behind[:-1]
    advice = f"say which is the target, and which are no features: --target {_quoted(behind[-1])}"
    raise MlmsError(f"{problem}; {advice} {_without(left_out)} ({_listed(names)})")


def _differs_in_each_row(data: ColumnsData, name: str) -> bool:
    """Return whether a column has another whole number or text in each row, as keys are."""
    cells = data.columns[name]
    are_keys = data.kind(name) == "texts" or all(cell.isdecimal() for cell in cells)
    return are_keys and len(set(cells)) == len(cells)


def _fitting(
    data: ColumnsData, names: Sequence[str], width: int | None, tensor: Tensor
) -> Sequence[str]:
    """Return as many columns as a model takes.

    Left out are those that number rows, and texts where the model takes numbers. Raises MlmsError
    where there are more or less.
    """
    if width is None or len(names) == width:
        return names
    ids = [name for name in names if _is_id(data, name)]
    texts = []
    for name in names:
        if name not in ids and data.kind(name) not in ("numbers", "truths"):
            texts.append(name)
    for left_out in (ids, texts if tensor.dtype != TEXTS else [], [*ids, *texts]):
        if left_out and len(names) - len(left_out) == width:
            return [name for name in names if name not in left_out]
    advice = "name the table that it was trained on, with the same columns"
    if len(names) > width:
        wrong = _quoted((ids or texts or names)[0])
        advice = f"leave out those that it was not trained on: --without {wrong}"
    problem = f"{data.path} has {counted(len(names))} of features, and the model takes {width}"
    raise MlmsError(f"{problem} in {tensor.name!r}; {advice} ({_listed(names)})")


def _is_id(data: ColumnsData, name: str) -> bool:
    """Return whether a column numbers the rows, or is called as if it did."""
    if data.has_header and _ID.fullmatch(name):
        return True
    if data.has_header and name != data.names[0]:
        return False
    cells = data.columns[name]
    if len(cells) < 3 or not all(cell.isdecimal() for cell in cells):
        return False
    return all(int(b) - int(a) == 1 for a, b in itertools.pairwise(cells))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown} …" if len(names) > _SHOWN else shown


def _without(names: Sequence[str]) -> str:
    return " ".join(f"--without {_quoted(name)}" for name in names)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else repr(name)


def _fit(data: ColumnsData, predictor: Predictor, classes: Classes, target: str) -> float:
    """Return the share of a column that the outputs explain, as if it were the target.

    It is at most 1, and 0 where the model can't be asked. The other columns are its features.
    """
    tensor = predictor.inputs[0]
    width = width_of(tensor)
    takes_texts = tensor.dtype == TEXTS
    names = []
    for name in data.names:
        if name != target and (takes_texts or data.kind(name) in ("numbers", "truths")):
            names.append(name)
    if len(tensor.shape) < 2 or (width is not None and len(names) < width):
        return 0.0

    features = [data.columns[name] for name in names[-(width or len(names)) :]]
    answers = data.columns[target]
    count = min(len(data.lines), _MOST_ROWS)
    complete = []
    for row in np.linspace(0, len(data.lines) - 1, count).astype(int):
        if not any(is_missing(cells[row]) for cells in (*features, answers)):
            complete.append(row)
    if len(complete) < 2:
        return 0.0

    read = str if takes_texts else as_number
    cells = [[read(column[row]) for row in complete] for column in features]
    shape = [-1, *(size or len(cells) for size in tensor.shape[1:])]
    kind = str if takes_texts else tensor.dtype
    try:
        batch = np.array(cells).T.reshape(shape).astype(kind)
        outputs = predictor.predict({tensor.name: batch})
    except (Refused, MlmsError, ValueError):
        return 0.0
    labels = [answers[row] for row in complete]
    return max((_explained(labels, array, classes) for array in outputs.values()), default=0.0)


def _explained(labels: list[str], output: Array, classes: Classes) -> float:
    """Return the share of labels that an output explains.

    It is r² for numbers. For classes it is the share of labels that are right, of those that the
    most frequent class doesn't get right by itself.
    """
    if output.shape[:1] != (len(labels),) or not output.size:
        return 0.0
    values = output.reshape(len(labels), -1)
    width = values.shape[1]
    if width == 1 and values.dtype.kind == "f":
        return _explained_variance(labels, values[:, 0])
    found, counts = np.unique(labels, return_counts=True)
    if width == 1:
        whole = [label.removesuffix(".0") for label in labels]
        right = values[:, 0].astype(str) == whole
    elif width < len(found) or values.dtype.kind == "U":
        return 0.0
    else:
        names = list(classes.names) if set(found) <= set(classes.names) else found.tolist()
        right = values.argmax(axis=1) == [names.index(label) for label in labels]
    most = counts.max() / len(labels)
    return float((right.mean() - most) / (1 - most)) if most < 1 else 0.0


def _explained_variance(labels: Sequence[str], values: Array) -> float:
    """Return r² of values (N) as labels that are numbers, 0 where they are none."""
    try:
        numbers = np.array([as_number(label) for label in labels])
    except ValueError:
        return 0.0
    spread = float(((numbers - numbers.mean()) ** 2).sum())
    rest = float(((numbers - values) ** 2).sum())
    return 1 - rest / spread if spread > 0 and np.isfinite(rest) else 0.0
