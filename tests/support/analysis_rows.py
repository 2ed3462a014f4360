"""Rows of an analysis by the names of its columns."""

from __future__ import annotations

from typing import Any

from pytest_mlms.measure.trace.analyses import ANALYSES
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.summary import TraceContext
from tests.support.traced_models import traced_model

__all__ = ["column_of", "rows_of"]


def rows_of(name: str, *traces: Trace) -> list[dict[str, Any]]:
    """Return the rows of an analysis; by default of a model that takes 100 µs."""
    if not traces:
        traces = (traced_model(1, 100),)
    table = ANALYSES[name].table([TraceContext(trace) for trace in traces])
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def column_of(name: str, column: str) -> list[Any]:
    """Return a column of an analysis of a model that takes 100 µs."""
    return [row[column] for row in rows_of(name)]
