"""The order of the rows of a series: by dates as people write them, or by numbers of time."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from pytest_mlms.author.draft.table_files import ColumnsData, as_number, is_missing
from pytest_mlms.core.errors import MlmsError

TIME = re.compile(r"date|time|datetime|timestamp|t|ds|period|year|month|day|hour", re.IGNORECASE)
"""Names of columns that tell the time of a row, or a part of it."""

_WHOLE = re.compile(r"date|time|datetime|timestamp|t|ds|period", re.IGNORECASE)
_PARTS = re.compile(
    r"(\d+)[-/.](\d+)(?:[-/.](\d+))?"
    r"(?:[T ]+(\d{1,2}):(\d\d)(?::(\d\d(?:\.\d+)?))? ?([ap]m)?(Z|[+-]\d\d:?\d\d)?)?",
    re.IGNORECASE,
)
_MONTHS = 12

Moment = tuple[float, ...]
"""Year, month, day, hour, minute and second."""


def in_time(data: ColumnsData, values: Sequence[str] = ()) -> tuple[ColumnsData, str]:
    """Return the rows in the order of their time, and what was sorted by, "" for nothing.

    The time is a column of dates, or one of numbers that is called so and is none of ``values``.
    Raises MlmsError for several rows of one time, as those of several series have, and for dates
    whose order isn't known.
    """
    for name in data.names:
        if name in values:
            continue
        if data.kind(name) == "dates":
            return _sorted_by(data, name, _moments(data, name))
        if data.has_header and _WHOLE.fullmatch(name) and data.kind(name) == "numbers":
            return _sorted_by(data, name, [(as_number(cell),) for cell in data.columns[name]])
    first = data.names[0]
    if first not in values and data.kind(first) == "numbers":
        numbers = [(as_number(cell),) for cell in data.columns[first]]
        if numbers == sorted(set(numbers), reverse=True):
            return _sorted_by(data, first, numbers)
    return data, ""


def _sorted_by(data: ColumnsData, name: str, moments: Sequence[Moment]) -> tuple[ColumnsData, str]:
    cells = data.columns[name]
    for cell, line in zip(cells, data.lines, strict=True):
        if is_missing(cell):
            problem = f"{data.path}:{line}: {data.shown(name)}, the time, is empty"
            raise MlmsError(f"{problem}; write it, or leave the column out: --without {name}")
    order = sorted(range(len(cells)), key=moments.__getitem__)
    for one, next_one in itertools.pairwise(order):
        if moments[one] == moments[next_one]:
            problem = f"{data.path}:{data.lines[next_one]}: {data.shown(name)} has"
            advice = "name a table of one series, with a row for each time"
            raise MlmsError(f"{problem} {cells[one]} again; {advice}")
    if order == list(range(len(cells))):
        return data, ""
    return data.rows(order), data.shown(name)


def _moments(data: ColumnsData, name: str) -> list[Moment]:
    """Return the times of a column of dates. Raises MlmsError where these aren't clear.

    03/04/2024 is a day in March or in April; where both give another order, neither is taken.
    """
    cells = data.columns[name]
    advice = f"write dates as 2024-01-31, or leave the column out: --without {name}"
    matches = []
    for cell, line in zip(cells, data.lines, strict=True):
        match = _PARTS.fullmatch(cell)
        if match is None and not is_missing(cell):
            problem = f"{data.path}:{line}: {data.shown(name)}: {cell!r} is no time known here"
            raise MlmsError(f"{problem}; {advice}")
        matches.append(match or _PARTS.fullmatch("0-0"))
    zones = {match[8] for match in matches if match}
    if len(zones) > 1:
        problem = f"{data.path}: {data.shown(name)} has times of several zones"
        raise MlmsError(f"{problem}; {advice}")
    found = []
    for days_first in (False, True):
        moments = [_moment(match, days_first) for match in matches if match]
        if all(moment[1] <= _MONTHS for moment in moments):
            found.append(moments)
    orders = [sorted(range(len(cells)), key=moments.__getitem__) for moments in found]
    if not found or any(order != orders[0] for order in orders):
        problem = f"{data.path}: {data.shown(name)} has dates such as {cells[0]!r}"
        raise MlmsError(f"{problem}, of which the month isn't clear; {advice}")
    return found[0]


def _moment(match: re.Match[str], days_first: bool) -> Moment:
    first, second, third = (float(part or 1) for part in match.group(1, 2, 3))
    day = (first, second, third)
    if len(match[1]) < len("2024") and match[3]:
        day = (third, second, first) if days_first else (third, first, second)
    hour, minute, second = (float(part or 0) for part in match.group(4, 5, 6))
    if match[7]:
        hour = hour % 12 + (12 if match[7].lower() == "pm" else 0)
    return (*day, hour, minute, second)
