"""What can be asked of a run's traces afterwards.

The analyses as tables, and the spans for other tools.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.errors import MlmsError
from pytest_mlms.report.table import format_table
from pytest_mlms.report.traces import note_lines
from pytest_mlms.trace.analyses import KINDS, Analysis
from pytest_mlms.trace.context import Table, TraceContext
from pytest_mlms.trace.spans import load_trace
from pytest_mlms.trace.summary import summarize

__all__ = ["FORMATS", "analysis_of", "reasons", "render", "subjects_of", "traces_of"]

FORMATS = ("table", "csv", "json")
_WIDTH = 160  # of what isn't written to a terminal


def analysis_of(kind: str) -> Analysis:
    """Return the analysis of this name or number; raises MlmsError."""
    for name, analysis in KINDS.items():
        if kind.lower() in filter(None, (name, analysis.number.lower())):
            return analysis
    known = ", ".join(
        f"{name} ({one.number})" if one.number else name for name, one in KINDS.items()
    )
    raise MlmsError(f"there is no analysis {kind!r}; write one of {known}")


def traces_of(run: Path) -> list[Path]:
    """Return the traces of a run's folder, or the one that is named.

    Raises MlmsError where there are none.
    """
    if run.is_file():
        return [run]
    found = sorted(run.glob("items/*/trace.npz"))
    if not run.exists():
        raise MlmsError(
            f"there is no {run}; name a trace.npz, or the folder of a run with --mlms-trace"
        )
    if not found:
        raise MlmsError(
            f"{run} has no traces; name a trace.npz, or the folder of a run with --mlms-trace"
        )
    return found


def subjects_of(run: Path, chosen: str = "") -> list[TraceContext]:
    """Return the traces of a run whose model and case contain ``chosen``, by model and batch size."""
    subjects = [TraceContext(load_trace(path)) for path in traces_of(run)]
    subjects = [one for one in subjects if chosen in " ".join(one.name)]
    if not subjects:
        raise MlmsError(
            f"{run} has no trace of {chosen!r}; see them with: mlms analyze {run} --kind model"
        )
    return sorted(
        subjects,
        key=lambda one: (*one.series, one.about["batch_size"], one.about["kind"] != "trace"),
    )


def reasons(subjects: Sequence[TraceContext]) -> list[str]:
    """Return why a table may be empty: the levels that were traced, and what was lacking there."""
    traces = [
        {"framework": one.about["framework"], "trace": summarize(one.trace)} for one in subjects
    ]
    levels = {level: None for one in subjects for level in one.about["levels"]}
    return [f"levels traced: {', '.join(levels)}", *note_lines(traces)]


def render(table: Table, form: str) -> str:
    """Return the table as text to read, as CSV, or as JSON.

    A list of objects with the columns' names.
    """
    if form == "json":
        return json.dumps(
            [dict(zip(table.columns, row, strict=True)) for row in table.rows], indent=1
        )
    if form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.columns)
        writer.writerows(table.rows)
        return text.getvalue().rstrip("\n")
    return "\n".join(_lines(table))


def _lines(table: Table) -> Iterator[str]:
    if not table.rows:
        yield "nothing was seen of this"
        return
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    cells = [[_shown(value) for value in row] for row in table.rows]
    texts = [
        index
        for index in range(len(table.columns))
        if any(isinstance(row[index], str) for row in table.rows)
    ]
    order = texts + [index for index in range(len(table.columns)) if index not in texts]
    rows = [[row[index] for index in order] for row in cells]
    for lines in format_table(
        [table.columns[index] for index in order], rows, width, left=len(texts)
    ):
        yield from lines


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def listing() -> Sequence[str]:
    """Return a line for each analysis."""
    return [f"{name:18} {analysis.number:4} {analysis.about}" for name, analysis in KINDS.items()]
