"""Queries of the traces of a run: which traces and which analysis, and the text of the answer."""

from __future__ import annotations

import csv
import io
import json
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.trace.analyses import ANALYSES
from pytest_mlms.measure.trace.analyses.analysis import Analysis, AnalysisTable
from pytest_mlms.measure.trace.storage import load_trace
from pytest_mlms.measure.trace.summary import TraceContext, summarize
from pytest_mlms.show.report.table import KEEP, format_table
from pytest_mlms.show.report.traces import TracedItem, notes_on

FORMATS = ("table", "csv", "json")
_WIDTH = 80  # columns of output that is not a terminal
_UNITS = {"share": "fraction", "of_roof": "fraction", "bytes": "B", "copied_bytes": "B"}
"""Column of a table for people -> the unit of its values; other columns name their unit."""

_ADVICE = "name a trace.npz, or the folder of a run with --mlms-trace"


def find_analysis(wanted: str) -> Analysis:
    """Return the analysis of this name or number; raises MlmsError where there is none."""
    for name, analysis in ANALYSES.items():
        if wanted and wanted.lower() in (name, analysis.number.lower()):
            return analysis
    known = ", ".join(analysis.title for analysis in ANALYSES.values())
    raise MlmsError(f"there is no analysis {wanted!r}; write one of {known}")


def list_analyses() -> list[str]:
    """Return a line of help for each analysis."""
    lines = []
    for name, analysis in ANALYSES.items():
        line = f"{name:18} {analysis.number:4} {analysis.description}"
        if analysis.levels:
            levels = ", ".join(analysis.levels)
            line = f"{line} [{levels}]"
        lines.append(line)
    return lines


def traces_of(run: Path) -> list[Path]:
    """Return the trace files of a run's folder, or ``run`` itself if it is a file.

    Raises MlmsError where there are none.
    """
    if run.is_file():
        return [run]
    if not run.exists():
        raise MlmsError(f"there is no {run}; {_ADVICE}")
    found = sorted(run.glob("items/*/trace.npz"))
    if not found:
        raise MlmsError(f"{run} has no traces; {_ADVICE}")
    return found


def contexts_of(run: Path, chosen: str = "") -> list[TraceContext]:
    """Return the traces of a run whose model and case contain ``chosen``, by model and batch size.

    Those of failed items come after those of trace items. Raises MlmsError where there are none.
    """
    contexts = []
    for path in traces_of(run):
        context = TraceContext(load_trace(path))
        if chosen in " ".join(context.name):
            contexts.append(context)
    if not contexts:
        raise MlmsError(
            f"{run} has no trace of {chosen!r}; see them with: "
            f"mlms analyze {shlex.quote(str(run))} --kind model"
        )

    def order(context: TraceContext) -> tuple[Any, ...]:
        is_of_failure = context.metadata.kind != "trace"
        return (*context.series, context.metadata.batch_size, is_of_failure)

    return sorted(contexts, key=order)


def missing_levels(analysis: Analysis, contexts: Sequence[TraceContext]) -> list[str]:
    """Return the levels that the analysis needs and that traces lack, with what to do or why."""
    option = ",".join(analysis.levels)
    lines = []
    for level in analysis.levels:
        needs = f"{analysis.title} needs level {level}"
        untraced = [context for context in contexts if not context.trace.runs_at(level)]
        if untraced:
            count = f"{len(untraced)} of {len(contexts)}"
            advice = f"run pytest with --mlms-trace={option}"
            lines.append(f"{needs}, and {count} traces were made without it; {advice}")
        for reason, number in _reasons_at(level, contexts).items():
            count = f"{number} of {len(contexts)}"
            lines.append(f"{needs}, where {count} traces have nothing to see: {reason}")
    return lines


def layer_times(analysis: Analysis, contexts: Sequence[TraceContext]) -> list[str]:
    """Return a line for each trace whose layers the analysis times: beside the call around them.

    A profiler lengthens what it observes, and one that counts whole microseconds says little of
    shorter layers.
    """
    if "layer" not in analysis.levels:
        return []
    lines = []
    for context in contexts:
        time = context.layer_time
        if time is None:
            continue
        layers = _microseconds(time.layers_us)
        line = f"{' '.join(context.name)}: {layers} in layers of a traced call of"
        line = f"{line} {_microseconds(time.call_us)}"
        if context.latency_us is not None:
            line += f"; a call without tracing takes {_microseconds(context.latency_us)}"
        if _has_whole_microseconds(context):
            line += "; the profiler counts whole microseconds"
        lines.append(line)
    return lines


def _microseconds(us: float) -> str:
    return format_quantity(us / 1e6, "s")


def _has_whole_microseconds(context: TraceContext) -> bool:
    """Return whether all layers take a whole number of microseconds."""
    spans = context.trace.spans
    layers = spans.find("layer", context.trace.run_at("layer"))
    return not (spans.duration[layers] % 1000).any()


def _reasons_at(level: str, contexts: Sequence[TraceContext]) -> Mapping[str, int]:
    """Return why traces that were made at a level have nothing to see there, and how many."""
    counts: Counter[str] = Counter()
    for context in contexts:
        reason = summarize(context.trace).unseen.get(level)
        if reason and context.trace.runs_at(level):
            counts[reason] += 1
    return counts


def reasons(contexts: Sequence[TraceContext]) -> list[str]:
    """Return why a table may be empty: the traced levels, and what was missing at each."""
    levels: dict[str, None] = {}
    items = []
    for context in contexts:
        levels.update(dict.fromkeys(context.metadata.levels))
        items.append(TracedItem(context.metadata.framework, summarize(context.trace)))
    return [f"levels traced: {', '.join(levels)}", *notes_on(items)]


def render(table: AnalysisTable, form: str) -> str:
    """Return the table as text: one of ``FORMATS``.

    JSON is a list of objects with the columns' names as keys. A table for people is as wide as the
    terminal; its columns of text come first.
    """
    if form == "json":
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        return json.dumps(rows, indent=1)
    if form == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
        return text.getvalue().rstrip("\n")
    if not table.rows:
        return "the traces have nothing of this"
    width = shutil.get_terminal_size((_WIDTH, 0)).columns
    columns = zip(*table.rows, strict=True)
    is_text = [any(isinstance(value, str) for value in column) for column in columns]
    order = sorted(range(len(is_text)), key=lambda index: not is_text[index])
    header = [table.columns[index].replace("_", " ") for index in order]  # folded at the blanks
    cells = [[_shown(row[index], table.columns[index]) for index in order] for row in table.rows]
    lines: list[str] = []
    for folded in format_table(header, cells, width, left=sum(is_text)):
        lines += folded
    return "\n".join(lines)


def _shown(value: Any, column: str) -> str:
    if value is None:
        return "-"
    if column in _UNITS:
        return format_quantity(value, _UNITS[column]).replace(" ", KEEP)
    if value is True:
        return "yes"
    if value is False:
        return ""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
