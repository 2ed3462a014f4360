"""An analysis of traces, and the table that it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_mlms.measure.trace.summary import TraceContext

Row = tuple[Any, ...]
RowsOfTrace = Callable[[TraceContext], Iterable[Row]]
RowsOfTraces = Callable[[Sequence[TraceContext]], Iterable[Row]]


@dataclass(frozen=True)
class AnalysisTable:
    """Names of columns, with their units, and rows of plain values; None where unknown."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def column(self, name: str) -> tuple[Any, ...]:
        """Return the values of a column."""
        index = self.columns.index(name)
        return tuple(row[index] for row in self.rows)


@dataclass(frozen=True)
class Analysis:
    """A question to traces.

    ``number`` is XSP's, or empty. ``description`` is shown in the help. ``rows`` returns rows
    with ``first_columns`` and then ``columns``. ``levels`` are those that all columns need, beside
    the model, which is always traced. ``largest`` is the column that decides which rows are on top;
    where it is empty, the first rows are.
    """

    name: str
    number: str
    description: str
    columns: tuple[str, ...]
    rows: RowsOfTraces
    first_columns: tuple[str, ...] = ("model", "case")
    levels: tuple[str, ...] = ()
    largest: str = ""

    @property
    def title(self) -> str:
        """The name, and the number in brackets where there is one."""
        if not self.number:
            return self.name
        return f"{self.name} ({self.number})"

    def table(self, traces: Sequence[TraceContext]) -> AnalysisTable:
        """Return the table over all traces."""
        columns = self.first_columns + self.columns
        rows = tuple(self.rows(traces))
        return AnalysisTable(columns, rows)

    def top(self, table: AnalysisTable, count: int) -> AnalysisTable:
        """Return at most ``count`` rows of each model and case, the largest first."""
        rows: Sequence[Row] = table.rows
        if self.largest:
            values = table.column(self.largest)
            order = sorted(range(len(rows)), key=lambda index: _rank(values[index]))
            rows = [rows[index] for index in order]
        kept = []
        for same in _by_first_columns(table.rows, rows, len(self.first_columns)):
            kept += same[:count]
        return replace(table, rows=tuple(kept))


def _rank(value: float | None) -> float:
    """Return a sort key: the largest value first, unknown ones last."""
    if value is None:
        return math.inf
    return -value


def _by_first_columns(
    original: Sequence[Row], rows: Sequence[Row], count: int
) -> Iterable[list[Row]]:
    """Return the rows with the same first columns together, in the original order of these."""
    groups: dict[Row, list[Row]] = {row[:count]: [] for row in original}
    for row in rows:
        groups[row[:count]].append(row)
    return groups.values()


def for_each_trace(rows_of_trace: RowsOfTrace) -> RowsOfTraces:
    """Return a function of all traces: each row of each trace, after its model and case."""

    def rows(traces: Sequence[TraceContext]) -> Iterable[Row]:
        for trace in traces:
            for row in rows_of_trace(trace):
                yield trace.name + row

    return rows


def sums_by_key(pairs: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """Return the sum of the values of each key."""
    sums: dict[str, float] = {}
    for key, value in pairs:
        sums.setdefault(key, 0)
        sums[key] += value
    return sums


def share_of(amount: float, total: float) -> float | None:
    """Return the share of a total; None of nothing."""
    if not total:
        return None
    return amount / total
