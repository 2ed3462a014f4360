"""A table of values over time, cut into windows, each with the values that follow it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from mlms_predictors import Tensor
from numpy.typing import NDArray

from pytest_mlms.author.draft.axes import option_of
from pytest_mlms.author.draft.table_files import ColumnsData, as_number, is_missing, is_number
from pytest_mlms.author.draft.table_target import TARGETS, width_of
from pytest_mlms.author.draft.table_times import TIME
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.schema import BATCH
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused

Array = NDArray[Any]

_LIKELY_WINDOW = 24
_SHOWN = 8  # columns in an error
_SEQUENCE = 3  # axes of a batch of windows


class Windows(NamedTuple):
    """The form of a model's windows, as it is cut out of a series.

    ``columns`` are those that it takes, ``size`` is the number of times. The batch has the axes N x
    size x columns, or N x columns x size if it is ``transposed``, or N x size if it is ``flat``.
    """

    columns: Sequence[str]
    size: int
    transposed: bool = False
    flat: bool = False


def windows_of(
    data: ColumnsData, tensors: Sequence[Tensor], target: Sequence[str]
) -> Windows | None:
    """Return the windows that a model takes of a series; None where a table isn't one for it.

    Raises MlmsError where their size isn't known.
    """
    if len(tensors) != 1 or not tensors[0].dtype.startswith("float"):
        return None
    (tensor,) = tensors
    names = _values(data)
    if len(tensor.shape) == 2:
        size = tensor.shape[1]
        is_series = len(names) == 1 and size is not None and size > 1 and not _texts(data)
        return Windows(names, size or 0, flat=True) if is_series else None
    if len(tensor.shape) != _SEQUENCE or _is_row(tensor, len(names)):
        return None
    _check_texts(data)
    return _of_sequence(data, tensor, names, target)


def _texts(data: ColumnsData) -> list[str]:
    """Return the columns of texts that differ: numbers with signs, or what tells several series."""
    return [
        name
        for name in data.names
        if data.kind(name) == "texts" and len(set(data.columns[name])) > 1
    ]


def _check_texts(data: ColumnsData) -> None:
    """Raise MlmsError for a column of texts, as windows would reach over several series."""
    for name in _texts(data):
        for cell, line in zip(data.columns[name], data.lines, strict=True):
            if not is_missing(cell) and not is_number(cell):
                problem = f"{data.path}:{line}: {data.shown(name)} has {cell!r} in a series"
                advice = "name a table of one series, all of numbers"
                raise MlmsError(f"{problem}; {advice}, or leave it out: --without {name}")


def _is_row(tensor: Tensor, columns: int) -> bool:
    """Return whether a row of a table is a whole window, maybe with a target behind it."""
    size = width_of(tensor)
    return size is not None and columns in (size, size + 1)


def _of_sequence(
    data: ColumnsData, tensor: Tensor, names: Sequence[str], target: Sequence[str]
) -> Windows:
    """Return the windows of a model that takes N x size x columns, or N x columns x size."""
    first, second = tensor.shape[1:]
    for chosen in (names, [name for name in names if not _is_target(name, target)]):
        if chosen and second == len(chosen):
            return Windows(chosen, _size(first, tensor, chosen, data))
        if chosen and first == len(chosen):
            return Windows(chosen, _size(second, tensor, chosen, data), transposed=True)
    sizes = " x ".join("any" if size is None else str(size) for size in tensor.shape)
    problem = f"{data.path} has {_counted(len(names))} of numbers ({', '.join(names[:_SHOWN])})"
    advice = "leave out those that it was not trained on: --without COLUMN"
    raise MlmsError(f"{problem}, and {tensor.name!r} takes windows of {sizes}; {advice}")


def _is_target(name: str, target: Sequence[str]) -> bool:
    return name in target or (not target and name.casefold() in TARGETS)


def _values(data: ColumnsData) -> list[str]:
    """Return the columns of values: not those of the time, which has dates or even steps."""
    names = [name for name in data.names if data.kind(name) in ("numbers", "truths")]
    if len(names) < 2:
        return names
    if data.has_header:
        names = [name for name in names if name and not TIME.fullmatch(name)] or names
    first = data.columns[data.names[0]]
    if len(names) > 1 and names[0] == data.names[0] and _has_even_steps(first):
        return names[1:]
    return names


def _has_even_steps(cells: Sequence[str]) -> bool:
    steps = np.diff([as_number(cell) for cell in cells])
    return len(steps) > 1 and bool(steps[0] != 0 and np.allclose(steps, steps[0], rtol=1e-6))


def _size(size: int | None, tensor: Tensor, columns: Sequence[str], data: ColumnsData) -> int:
    """Return the times of a window. Raises MlmsError where the model takes any number of them."""
    if size is not None:
        return size
    shape: list[int | str] = [BATCH, *(each or _LIKELY_WINDOW for each in tensor.shape[1:])]
    problem = f"{data.path} has {_counted(len(columns))} over time"
    advice = f"say how many it was trained on: {option_of(tensor.name, shape)}"
    takes = f"{tensor.name!r} takes windows of any number of times"
    raise MlmsError(f"{problem}, and {takes}; {advice}")


def _counted(columns: int) -> str:
    return "1 column" if columns == 1 else f"{columns} columns"


class Cut(NamedTuple):
    """Windows and what follows each: the input (N rows), labels (N x numbers), and the reason.

    ``targets`` are the columns that labels are of; ``left_out`` the rows of the table in which a
    value is missing, which no window has.
    """

    inputs: Array
    labels: Array
    targets: Sequence[str]
    reason: str
    left_out: Sequence[int]


def cut(
    data: ColumnsData,
    form: Windows,
    predictor: Predictor,
    target: Sequence[str],
) -> Cut:
    """Return windows and the values behind them, as many as the model gives for one.

    Raises MlmsError where the model gives others, and for a series that is too short.
    """
    (tensor,) = predictor.inputs
    values = _numbers(data, form.columns)
    if len(values) <= form.size:
        problem = f"{data.path} has {len(values)} times, and a window of the model {form.size}"
        raise MlmsError(f"{problem}; name a longer series")
    size = _answer_size(predictor, tensor, _in_axes(values[np.newaxis, : form.size], form))
    targets, times, reason = _targets(data, form, size, target)
    following = _numbers(data, targets)
    count = len(values) - form.size - times + 1
    if count < 1:
        raise MlmsError(f"{data.path} is too short for the {times} times that the model gives")
    starts = np.arange(count)
    windows = values[starts[:, np.newaxis] + np.arange(form.size)]
    answers = following[starts[:, np.newaxis] + form.size + np.arange(times)]
    labels = answers.reshape(count, -1)
    complete = np.isfinite(windows).all(axis=(1, 2)) & np.isfinite(labels).all(axis=1)
    if not complete.any():
        raise MlmsError(f"{data.path}: every window has missing values; fill them in")
    lacking = ~np.isfinite(values).all(axis=1) | ~np.isfinite(following).all(axis=1)
    inputs = _in_axes(windows[complete], form).astype(tensor.dtype)
    return Cut(inputs, labels[complete], targets, reason, np.flatnonzero(lacking).tolist())


def _numbers(data: ColumnsData, names: Sequence[str]) -> Array:
    """Return the numbers of columns, times x columns. Raises MlmsError for another cell."""
    columns = []
    for name in names:
        values = []
        for cell, line in zip(data.columns[name], data.lines, strict=True):
            try:
                values.append(as_number(cell))
            except ValueError as error:
                problem = f"{data.path}:{line}: {data.shown(name)}: {error}"
                raise MlmsError(f"{problem}; correct it, or --without {name}") from error
        columns.append(values)
    return np.array(columns, np.float64).T


def _in_axes(windows: Array, form: Windows) -> Array:
    """Return windows (N x size x columns) in the axes that the model takes."""
    if form.flat:
        return windows[:, :, 0]
    return windows.transpose(0, 2, 1) if form.transposed else windows


def _answer_size(predictor: Predictor, tensor: Tensor, window: Array) -> int:
    """Return how many numbers the model gives for a window. Raises MlmsError for none."""
    batch = np.repeat(np.nan_to_num(window), tensor.shape[0] or 1, axis=0)
    try:
        outputs = predictor.predict({tensor.name: batch.astype(tensor.dtype)})
    except Refused as error:
        advice = "write its manifest by hand, with the shape of the input"
        raise MlmsError(f"the model does not run on a window: {error}; {advice}") from error
    for values in outputs.values():
        if values.dtype.kind == "f" and len(values) == len(batch):
            return int(values[0].size)
    raise MlmsError("the model gives no numbers for a window; name labels by an .npz")


def _targets(
    data: ColumnsData, form: Windows, size: int, target: Sequence[str]
) -> tuple[Sequence[str], int, str]:
    """Return the columns that are predicted, of how many times, and why.

    Raises MlmsError where that can't be known.
    """
    names = list(form.columns)
    usual = [name for name in data.names if data.has_header and name.casefold() in TARGETS]
    beside = [name for name in usual if name not in names]
    for columns, reason in (
        (list(target), "as --target says"),
        (beside[:1], "by its name"),
        (names if size % len(names) == 0 else [], "as the model gives as many"),
        (usual[:1], "by its name"),
    ):
        if columns and size % len(columns) == 0:
            times = size // len(columns)
            shown = ", ".join(data.shown(name) for name in columns)
            after = "the time" if times == 1 else f"the {times} times"
            return columns, times, f"{shown} at {after} after each window, {reason}"
    numbers = "1 number" if size == 1 else f"{size} numbers"
    problem = f"{data.path} has {_counted(len(names))} over time, and the model gives {numbers}"
    advice = f"say which it predicts: --target {names[-1]}"
    raise MlmsError(f"{problem} for a window; {advice}")
