"""An analysis of traces, and the table that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_mlms.trace.context import TraceContext

__all__ = ["Analysis", "AnalysisTable", "Row", "for_each_trace", "share_of", "sums_by_key"]

Row = tuple[Any, ...]
RowsOfTrace = Callable[[TraceContext], Iterable[Row]]
RowsOfTraces = Callable[[Sequence[TraceContext]], Iterable[Row]]


@dataclass(frozen=True)
class AnalysisTable:
    """Names of columns, with their units, and rows of plain values; None where unknown."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Analysis:
    """A question to traces.

    ``number`` is that of XSP, or empty. ``description`` is shown in the help. ``rows`` returns rows
    with ``first_columns`` and then ``columns``.
    """

    name: str
    number: str
    description: str
    columns: tuple[str, ...]
    rows: RowsOfTraces
    first_columns: tuple[str, ...] = ("model", "case")

    def table(self, traces: Sequence[TraceContext]) -> AnalysisTable:
        """Return the table over all traces."""
        columns = self.first_columns + self.columns
        rows = tuple(self.rows(traces))
        return AnalysisTable(columns, rows)


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
