"""A table of values over time: its rows in order, cut into windows with the values that follow.

Times are dates as people write them, or numbers.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.author.draft.axes import option_of
from pytest_mlms.author.draft.table_files import (
    ColumnsData,
    as_number,
    counted,
    is_missing,
    is_number,
)
from pytest_mlms.author.draft.table_target import TARGETS, width_of
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.schema import BATCH
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused

_WHOLE_TIME = re.compile(r"date|time|datetime|timestamp|t|ds|period", re.IGNORECASE)
_PART_OF_TIME = re.compile(r"year|month|day|hour", re.IGNORECASE)
"""Names of columns that tell the time of a row, or a part of it."""
_DATE = re.compile(
    r"(\d+)[-/.](\d+)(?:[-/.](\d+))?"
    r"(?:[T ]+(\d{1,2}):(\d\d)(?::(\d\d(?:\.\d+)?))? ?([ap]m)?(Z|[+-]\d\d:?\d\d)?)?",
    re.IGNORECASE,
)
_MONTHS = 12
_LIKELY_WINDOW = 24
_SHOWN = 8  # columns in an error
_SEQUENCE = 3  # axes of a batch of windows

Moment = tuple[float, ...]
"""Year, month, day, hour, minute and second; or a number of time."""


class Windows(NamedTuple):
    """The form of a model's windows, as it is cut out of a series.

    ``columns`` are those that it takes, ``size`` is the number of times. The batch has the axes N x
    size x columns, or N x columns x size if it is ``transposed``, or N x size if it is ``flat``.
    """

    columns: Sequence[str]
    size: int
    transposed: bool = False
    flat: bool = False

    def laid_out(self, windows: Array) -> Array:
        """Return windows (N x size x columns) in the axes that the model takes."""
        if self.flat:
            return windows[:, :, 0]
        return windows.transpose(0, 2, 1) if self.transposed else windows


class Cut(NamedTuple):
    """Windows and what follows each: the input (N rows), labels (N x numbers), and the reason.

    ``left_out`` are the rows of the table in which a value is missing, which no window has.
    """

    inputs: Array
    labels: Array
    reason: str
    left_out: Sequence[int]


def windows_of(
    data: ColumnsData, tensors: Sequence[Tensor], target: Sequence[str]
) -> Windows | None:
    """Return the windows that a model takes of a series; None where a table isn't one for it.

    Raises MlmsError where their size isn't known, and for texts, as windows would reach over
    several series.
    """
    if len(tensors) != 1 or not tensors[0].dtype.startswith("float"):
        return None
    tensor = tensors[0]
    names = _columns_of_values(data)
    width = width_of(tensor)
    if len(tensor.shape) == 2:
        is_series = len(names) == 1 and width is not None and width > 1
        return Windows(names, width or 0, flat=True) if is_series and not _texts(data) else None
    is_row = width is not None and len(names) in (width, width + 1)  # maybe with a target behind it
    if len(tensor.shape) != _SEQUENCE or is_row:
        return None
    for name in _texts(data):
        for cell, line in zip(data.columns[name], data.lines, strict=True):
            if not is_missing(cell) and not is_number(cell):
                problem = f"{data.path}:{line}: {data.shown(name)} has {cell!r} in a series"
                advice = "name a table of one series, all of numbers"
                raise MlmsError(f"{problem}; {advice}, or leave it out: --without {name}")
    return _windows_of_columns(data, tensor, names, target)


def _texts(data: ColumnsData) -> list[str]:
    """Return the columns of texts that differ: numbers with signs, or what tells several series."""
    names = [name for name in data.names if data.kind(name) == "texts"]
    return [name for name in names if len(set(data.columns[name])) > 1]


def _windows_of_columns(
    data: ColumnsData, tensor: Tensor, names: Sequence[str], target: Sequence[str]
) -> Windows:
    """Return the windows of a model that takes N x size x columns, or N x columns x size."""
    targets = list(target)
    if not targets:
        targets = [name for name in names if name.casefold() in TARGETS]
    features = [name for name in names if name not in targets]
    first, second = tensor.shape[1:]
    for chosen in (list(names), features):
        if not chosen or len(chosen) not in (first, second):
            continue
        is_transposed = second != len(chosen)
        size = second if is_transposed else first
        if size is not None:
            return Windows(chosen, size, transposed=is_transposed)
        shape: list[int | str] = [BATCH]
        shape += [axis or _LIKELY_WINDOW for axis in tensor.shape[1:]]
        problem = f"{data.path} has {counted(len(chosen))} over time"
        takes = f"{tensor.name!r} takes windows of any number of times"
        advice = f"say how many it was trained on: {option_of(tensor.name, shape)}"
        raise MlmsError(f"{problem}, and {takes}; {advice}")
    sizes = " x ".join("any" if size is None else str(size) for size in tensor.shape)
    problem = f"{data.path} has {counted(len(names))} of numbers ({', '.join(names[:_SHOWN])})"
    advice = "leave out those that it was not trained on: --without COLUMN"
    raise MlmsError(f"{problem}, and {tensor.name!r} takes windows of {sizes}; {advice}")


def _columns_of_values(data: ColumnsData) -> list[str]:
    """Return the columns of values: not those of the time, which has dates or even steps."""
    names = [name for name in data.names if data.kind(name) in ("numbers", "truths")]
    if len(names) < 2:
        return names
    if data.has_header:
        values = [name for name in names if name and not _tells_time(name)]
        names = values or names
    if len(names) < 2 or names[0] != data.names[0]:
        return names
    steps = np.diff([as_number(cell) for cell in data.columns[names[0]]])
    is_even = len(steps) > 1 and steps[0] != 0 and np.allclose(steps, steps[0], rtol=1e-6)
    return names[1:] if is_even else names


def _tells_time(name: str) -> bool:
    return bool(_WHOLE_TIME.fullmatch(name) or _PART_OF_TIME.fullmatch(name))


def cut(data: ColumnsData, form: Windows, predictor: Predictor, target: Sequence[str]) -> Cut:
    """Return windows and the values behind them, as many as the model gives for one.

    Raises MlmsError where the model gives others, and for a series that is too short.
    """
    values = _numbers(data, form.columns)
    if len(values) <= form.size:
        problem = f"{data.path} has {len(values)} times, and a window of the model {form.size}"
        raise MlmsError(f"{problem}; name a longer series")
    tensor = predictor.inputs[0]
    first_window = form.laid_out(values[np.newaxis, : form.size])
    numbers = _numbers_of_answer(predictor, tensor, first_window)
    targets, reason = _targets(data, form, numbers, target)
    following = _numbers(data, targets)
    times = numbers // len(targets)
    count = len(values) - form.size - times + 1
    if count < 1:
        raise MlmsError(f"{data.path} is too short for the {times} times that the model gives")

    starts = np.arange(count)[:, np.newaxis]
    windows = values[starts + np.arange(form.size)]
    labels = following[starts + form.size + np.arange(times)].reshape(count, -1)
    complete = np.isfinite(windows).all(axis=(1, 2)) & np.isfinite(labels).all(axis=1)
    if not complete.any():
        raise MlmsError(f"{data.path}: every window has missing values; fill them in")
    is_known = np.isfinite(values).all(axis=1) & np.isfinite(following).all(axis=1)
    inputs = form.laid_out(windows[complete]).astype(tensor.dtype)
    return Cut(inputs, labels[complete], reason, np.flatnonzero(~is_known).tolist())


def _numbers(data: ColumnsData, names: Sequence[str]) -> Array:
    """Return the numbers of columns, times x columns. Raises MlmsError for another cell."""
    columns = [data.numbers(name, f"; correct it, or --without {name}") for name in names]
    return np.array(columns, np.float64).T


def _numbers_of_answer(predictor: Predictor, tensor: Tensor, window: Array) -> int:
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
    data: ColumnsData, form: Windows, numbers: int, target: Sequence[str]
) -> tuple[Sequence[str], str]:
    """Return the columns that are predicted, of which the model gives so many numbers, and why.

    Raises MlmsError where that can't be known.
    """
    names = list(form.columns)
    usual = [name for name in data.names if data.has_header and name.casefold() in TARGETS]
    beside = [name for name in usual if name not in names]
    candidates = [(list(target), "as --target says"), (beside[:1], "by its name")]
    if numbers % len(names) == 0:
        candidates.append((names, "as the model gives as many"))
    candidates.append((usual[:1], "by its name"))
    for columns, reason in candidates:
        if columns and numbers % len(columns) == 0:
            times = numbers // len(columns)
            after = "the time" if times == 1 else f"the {times} times"
            shown = ", ".join(data.shown(name) for name in columns)
            return columns, f"{shown} at {after} after each window, {reason}"
    given = "1 number" if numbers == 1 else f"{numbers} numbers"
    problem = f"{data.path} has {counted(len(names))} over time, and the model gives {given}"
    advice = f"say which it predicts: --target {names[-1]}"
    raise MlmsError(f"{problem} for a window; {advice}")


def in_time(data: ColumnsData, values: Sequence[str] = ()) -> tuple[ColumnsData, str]:
    """Return the rows in the order of their time, and what was sorted by, "" for nothing.

    The time is a column of dates, or one of numbers that is called so and is none of ``values``, or
    that falls from row to row. Raises MlmsError for several rows of one time, as those of several
    series have, and for dates whose order isn't known.
    """
    for name in data.names:
        if name in values:
            continue
        kind = data.kind(name)
        if kind == "dates":
            return _sorted_by(data, name, _moments(data, name))
        if kind == "numbers" and data.has_header and _WHOLE_TIME.fullmatch(name):
            return _sorted_by(data, name, _moments_of_numbers(data, name))
    first = data.names[0]
    if first not in values and data.kind(first) == "numbers":
        moments = _moments_of_numbers(data, first)
        if moments == sorted(set(moments), reverse=True):
            return _sorted_by(data, first, moments)
    return data, ""


def _moments_of_numbers(data: ColumnsData, name: str) -> list[Moment]:
    return [(as_number(cell),) for cell in data.columns[name]]


def _sorted_by(data: ColumnsData, name: str, moments: Sequence[Moment]) -> tuple[ColumnsData, str]:
    cells = data.columns[name]
    for cell, line in zip(cells, data.lines, strict=True):
        if is_missing(cell):
            problem = f"{data.path}:{line}: {data.shown(name)}, the time, is empty"
            raise MlmsError(f"{problem}; write it, or leave the column out: --without {name}")
    order = _order_of(moments)
    for one, next_one in itertools.pairwise(order):
        if moments[one] == moments[next_one]:
            problem = f"{data.path}:{data.lines[next_one]}: {data.shown(name)} has"
            advice = "name a table of one series, with a row for each time"
            raise MlmsError(f"{problem} {cells[one]} again; {advice}")
    if order == list(range(len(cells))):
        return data, ""
    return data.rows(order), data.shown(name)


def _order_of(moments: Sequence[Moment]) -> list[int]:
    return sorted(range(len(moments)), key=moments.__getitem__)


def _moments(data: ColumnsData, name: str) -> list[Moment]:
    """Return the times of a column of dates. Raises MlmsError where these aren't clear.

    03/04/2024 is a day in March or in April; where both give another order, neither is taken.
    """
    cells = data.columns[name]
    advice = f"write dates as 2024-01-31, or leave the column out: --without {name}"
    matches = []
    zones = set()
    for cell, line in zip(cells, data.lines, strict=True):
        match = _DATE.fullmatch("0-0" if is_missing(cell) else cell)
        if match is None:
            problem = f"{data.path}:{line}: {data.shown(name)}: {cell!r} is no time known here"
            raise MlmsError(f"{problem}; {advice}")
        matches.append(match)
        zones.add(match[8])
    if len(zones) > 1:
        problem = f"{data.path}: {data.shown(name)} has times of several zones"
        raise MlmsError(f"{problem}; {advice}")

    readings = []
    for days_first in (False, True):
        moments = [_moment(match, days_first) for match in matches]
        if all(moment[1] <= _MONTHS for moment in moments):
            readings.append(moments)
    orders = [_order_of(moments) for moments in readings]
    if not readings or orders[0] != orders[-1]:
        problem = f"{data.path}: {data.shown(name)} has dates such as {cells[0]!r}"
        raise MlmsError(f"{problem}, of which the month isn't clear; {advice}")
    return readings[0]


def _moment(match: re.Match[str], days_first: bool) -> Moment:
    first, second, third = (float(part or 1) for part in match.group(1, 2, 3))
    day = (first, second, third)
    if len(match[1]) < len("2024") and match[3]:
        day = (third, second, first) if days_first else (third, first, second)
    hour, minute, second = (float(part or 0) for part in match.group(4, 5, 6))
    if match[7]:
        hour = hour % 12 + (12 if match[7].lower() == "pm" else 0)
    return (*day, hour, minute, second)
