"""Tables of results at the end of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import pytest

from pytest_mlms.records import Verdict
from pytest_mlms.report.columns import (
    NO_LIMIT,
    OWN_TITLE,
    TABLES,
    Cell,
    Result,
    Table,
    comparisons_of,
    own_columns,
    verdict_in,
)
from pytest_mlms.report.originals import ORIGINALS_TITLE, original_lines
from pytest_mlms.report.summary import is_measured
from pytest_mlms.report.table import format_table
from pytest_mlms.report.traces import (
    OVERHEAD_TITLE,
    TIME_TITLE,
    note_lines,
    overhead_columns,
    time_columns,
)
from pytest_mlms.upgrade.labels import deciding_label, point_label, sides_label

__all__ = ["write_tables"]

Results = Sequence[Result]

_EMPTY = "-"
_MOST_ROWS = 100
_SHOWN_SKIPPED = 5
_VERDICTS = [*[verdict.value for verdict in Verdict], NO_LIMIT]  # worst first
_WITHOUT_RESULT = ("ERROR", "INVALID", "FAILED")
_MARKUP: dict[str, dict[str, bool]] = {
    "ERROR": {"red": True},
    "INVALID": {"red": True},
    "FAILED": {"red": True},
    "REGRESSED": {"red": True},
    "INCONCLUSIVE": {"yellow": True},
    "IMPROVED": {"green": True},
}


def write_tables(terminal: pytest.TerminalReporter, results: Results) -> None:
    """Write a table for each kind of item, and what else the user should know of the results.

    The worst items come first. Rows beyond ``_MOST_ROWS`` are counted, not shown.
    """
    writer = _TableWriter(terminal, terminal._tw.fullwidth)
    ordered = sorted(results, key=_badness)
    for table in TABLES:
        writer.write(table, [result for result in results if _belongs_to(result, table)])
    writer.write_own([result for result in ordered if result.get("quantities")])
    writer.write_traces([result for result in ordered if result.get("trace")])
    for result in ordered:
        doubts = _doubts_of(result)
        if doubts:
            terminal.write_line(f"{doubts}: {result['nodeid']}", yellow=True)
    writer.write_originals(results)
    for line in _skipped_lines(results):
        terminal.write_line(line, yellow=True)
    writer.write_unmeasured([result for result in ordered if _is_without_result(result)])


def _badness(result: Result, verdict: str = "") -> tuple[int, float]:
    """Return the sort key of an item, or of the verdict that a table shows of it."""
    margin = result.get("margin")
    if margin is None:
        margin = math.inf
    return _VERDICTS.index(verdict or result["verdict"]), margin


def _verdict_of_item(result: Result) -> str:
    return str(result["verdict"])


def _belongs_to(result: Result, table: Table) -> bool:
    estimates = result.get("estimates") or {}
    if result["kind"] != table.kind or not (estimates or _is_compared(result)):
        return False
    if estimates and table.quantities and table.quantities.isdisjoint(estimates):
        return False
    if table.same_stack_only:
        return bool(result["against"]["name"] == result["stack"]["name"])
    return True


def _is_compared(result: Result) -> bool:
    return bool(result.get("comparisons"))


def _doubts_of(result: Result) -> str:
    """Return what a person should know of the processes of an item, "" where there is nothing.

    It doesn't matter to an item that ended early: its limits are far beyond what may change.
    """
    if result.get("ended") == "early":
        return ""
    processes = result.get("processes") or ()
    if result.get("doubts") or all(process["steady"] for process in processes):
        return str(result.get("doubts", ""))
    return "warm-up did not reach a steady state"


def _skipped_lines(results: Results) -> list[str]:
    """Return a line for each dataset of which corrupt elements were left out."""
    lines = {}
    for result in results:
        skipped = result.get("skipped_elements")
        if skipped:
            dataset = result["dataset"]["name"]
            count = "1 corrupt element" if len(skipped) == 1 else f"{len(skipped)} corrupt elements"
            shown = [each["element"] for each in skipped[:_SHOWN_SKIPPED]]
            if len(skipped) > len(shown):
                shown.append("…")
            model = result["manifest"]["name"]
            lines[model] = f"{model}: {count} of {dataset} left out: {', '.join(shown)}"
    return list(lines.values())


def _is_without_result(result: Result) -> bool:
    """Return whether an item failed before it measured anything that a table shows."""
    return result["verdict"] in _WITHOUT_RESULT and not is_measured(result)


class _TableWriter:
    """Writes tables to a terminal of ``width`` columns."""

    def __init__(self, terminal: pytest.TerminalReporter, width: int) -> None:
        self._terminal = terminal
        self._width = width

    def write(self, table: Table, results: Results) -> None:
        """Write a table under its title, upgrades in a part for each pair of stacks."""
        if not results:
            return
        verdict_of = partial(verdict_in, table)
        ordered = sorted(results, key=lambda result: _badness(result, verdict_of(result)))
        self._terminal.write_sep("-", f"mlms: {table.title}, worst first")
        for sides, alike in _by_sides(ordered).items():
            if sides:
                self._terminal.write_line(sides)
            for part in _by_columns(table, alike):
                self._write_rows(part, _filled(table, part), verdict_of)

    def write_own(self, results: Results) -> None:
        """Write what users' own tests measured."""
        if results:
            self._terminal.write_sep("-", OWN_TITLE)
            self._write_rows(results, own_columns(results))

    def write_traces(self, results: Results) -> None:
        """Write where the time went, what tracing added to it, and what could not be seen."""
        if not results:
            return
        for title, columns in (
            (TIME_TITLE, time_columns()),
            (OVERHEAD_TITLE, overhead_columns(results)),
        ):
            if columns:
                self._terminal.write_sep("-", title)
                self._write_rows(results, columns)
        for line in note_lines(results):
            self._terminal.write_line(line, yellow=True)

    def write_originals(self, results: Results) -> None:
        """Write what was decided about original manifests, and which other versions ran."""
        lines = list(original_lines(results))
        if not lines:
            return
        self._terminal.write_sep("-", ORIGINALS_TITLE)
        for line in lines[:_MOST_ROWS]:
            self._terminal.write_line(line)
        more = len(lines) - _MOST_ROWS
        if more > 0:
            self._terminal.write_line(f"… and {more:,} more; results.jsonl has them all")

    def write_unmeasured(self, results: Results) -> None:
        """Write a line for each item that failed before it measured anything."""
        if not results:
            return
        self._terminal.write_sep("-", "mlms: without a result")
        for result in results[:_MOST_ROWS]:
            line = f"{result['verdict']}  {result['nodeid']}"
            self._terminal.write_line(line, red=True)
        self._write_rest(len(results))

    def _write_rows(
        self,
        results: Results,
        columns: Mapping[str, Cell],
        verdict_of: Cell = _verdict_of_item,
    ) -> None:
        shown = results[:_MOST_ROWS]
        header = ["verdict", "model", "case", *columns]
        rows = [_row(result, [verdict_of, *columns.values()]) for result in shown]
        header_lines, *row_lines = format_table(header, rows, self._width, left=3)
        for line in header_lines:
            self._terminal.write_line(line, bold=True)
        for result, lines in zip(shown, row_lines, strict=True):
            markup = _MARKUP.get(verdict_of(result), {})
            for line in [*lines, *_decided_by(result)]:
                self._terminal.write_line(line, **markup)
        self._write_rest(len(results))

    def _write_rest(self, count: int) -> None:
        if count > _MOST_ROWS:
            rest = f"{count - _MOST_ROWS:,} that did no worse"
            line = f"… and {rest}; results.jsonl has them all"
            self._terminal.write_line(line)


def _filled(table: Table, results: Results) -> Mapping[str, Cell]:
    """Return the columns of a table, of accuracy those that any of the results has.

    Each task has other quantities.
    """
    if table.kind != "accuracy":
        return table.columns
    filled = {}
    for title, cell in table.columns.items():
        if any(cell(result) != _EMPTY for result in results):
            filled[title] = cell
    return filled


def _by_columns(table: Table, results: Results) -> list[list[Result]]:
    """Group results by the columns that they have, or a part of which they have.

    Tasks that share a table have columns of their own.
    """
    parts: list[tuple[set[str], list[Result]]] = []
    for result in results:
        titles = set(_filled(table, [result]))
        for known, part in parts:
            if known <= titles or titles <= known:
                known.update(titles)
                part.append(result)
                break
        else:
            parts.append((titles, [result]))
    return [part for _, part in parts]


def _by_sides(results: Results) -> dict[str, list[Result]]:
    """Group upgrades by what they compare, whose long names are then written once.

    Results of other kinds have the key "".
    """
    by_sides: dict[str, list[Result]] = {}
    for result in results:
        by_sides.setdefault(_sides(result), []).append(result)
    return by_sides


def _sides(result: Result) -> str:
    if not _is_compared(result):
        return ""
    candidate = result["stack"]["name"]
    baseline = result["against"]["name"]
    return sides_label(candidate, baseline, result["framework"])


def _row(result: Result, cells: Iterable[Cell]) -> list[str]:
    case = result["case"]
    if _is_compared(result):
        case = point_label(result["device"], result["batch_size"])
    if "repetition" in result:
        case = f"{case} #{result['repetition']}"
    verdict, *shown = (cell(result) for cell in cells)
    return [verdict, result["manifest"]["name"], case, *shown]


def _decided_by(result: Result) -> list[str]:
    """Return a line of the quantities that decided an upgrade, if latency alone did not."""
    names = deciding_label(Verdict(result["verdict"]), comparisons_of(result))
    return [f"  {names}"] if names else []
