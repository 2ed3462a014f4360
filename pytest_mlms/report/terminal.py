"""What a person sees: the tables at the end of the run, and the progress of a long download."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pytest_mlms.records import Verdict
from pytest_mlms.report.table import format_table
from pytest_mlms.units import format_quantity

__all__ = ["download_progress", "write_tables"]

Result = Mapping[str, Any]

_MOST_ROWS = 100
_WIDTH = 100
_WORST_FIRST = [verdict.value for verdict in Verdict]
_COLOURS = {"ERROR": {"red": True}, "FAILED": {"red": True}, "INCONCLUSIVE": {"yellow": True}}


def _value(result: Result, quantity: str) -> str:
    estimate = result["estimates"].get(quantity)
    if not estimate or estimate["lacking"]:
        return "-"
    return format_quantity(estimate["value"], estimate["unit"])


def _share(result: Result, quantity: str) -> str:
    estimate = result["estimates"].get(quantity)
    if not estimate:
        return "-"
    value, low, high = (100 * estimate[key] for key in ("value", "low", "high"))
    return f"{value:.2f} ({low:.2f} to {high:.2f}) %"


def _with_spread(result: Result, quantity: str) -> str:
    estimate = result["estimates"].get(quantity)
    if not estimate or estimate["high"] is None or not estimate["value"]:
        return _value(result, quantity)
    return f"{_value(result, quantity)} ±{100 * (estimate['high'] / estimate['value'] - 1):.2g} %"


_TABLES: list[tuple[str, str, dict[str, Callable[[Result], str]]]] = [
    (
        "accuracy",
        "accuracy",
        {
            "top-1 (interval)": lambda result: _share(result, "top1"),
            "top-5 (interval)": lambda result: _share(result, "top5"),
            "inputs": lambda result: f"{result['estimates']['top1']['replicates']:,}",
        },
    ),
    (
        "performance",
        "latency and throughput",
        {
            "p50": lambda result: _with_spread(result, "latency_p50"),
            "p90": lambda result: _value(result, "latency_p90"),
            "p99": lambda result: _value(result, "latency_p99"),
            "throughput": lambda result: _value(result, "throughput"),
        },
    ),
    (
        "performance",
        "start-up and memory",
        {
            "load": lambda result: _value(result, "load_time"),
            "first call": lambda result: _value(result, "first_inference"),
            "peak memory": lambda result: _value(result, "peak_memory"),
            "processes": lambda result: str(len(result["processes"])),
        },
    ),
]


def write_tables(terminal: pytest.TerminalReporter, results: Sequence[Result]) -> None:
    """Write the tables, the worst item first; more rows than a person reads are counted, not shown."""
    ordered = sorted(results, key=_badness)
    width = min(terminal._tw.fullwidth, _WIDTH) if terminal.isatty else _WIDTH  # a log has no width of its own
    for kind, title, columns in _TABLES:
        measured = [result for result in ordered if result["kind"] == kind and result.get("estimates")]
        if measured:
            terminal.write_sep("-", f"mlms: {title}, worst first")
            _write_table(terminal, measured, columns, width)
    for result in [result for result in ordered if not all(one["steady"] for one in result.get("processes") or ())]:
        terminal.write_line(f"still getting faster when it was timed: {result['nodeid']}", yellow=True)
    unmeasured = [r for r in ordered if not r.get("estimates") and r["verdict"] in ("ERROR", "FAILED")]
    if unmeasured:
        terminal.write_sep("-", "mlms: without a result")
        for result in unmeasured[:_MOST_ROWS]:
            terminal.write_line(f"{result['verdict']}  {result['nodeid']}", red=True)
        _write_rest(terminal, len(unmeasured))


def _badness(result: Result) -> tuple[int, float]:
    margin = result.get("margin")
    return _WORST_FIRST.index(result["verdict"]), math.inf if margin is None else margin


def _write_table(
    terminal: pytest.TerminalReporter, results: Sequence[Result], columns: Mapping[str, Any], width: int
) -> None:
    shown = results[:_MOST_ROWS]
    rows = [
        [result["verdict"], result["manifest"]["name"], result["case"], *(cell(result) for cell in columns.values())]
        for result in shown
    ]
    header, *lines = format_table(["verdict", "model", "case", *columns], rows, width, left=3)
    for line in header:
        terminal.write_line(line, bold=True)
    for result, folded in zip(shown, lines, strict=True):
        for line in folded:
            terminal.write_line(line, **_COLOURS.get(result["verdict"], {}))
    _write_rest(terminal, len(results))


def _write_rest(terminal: pytest.TerminalReporter, count: int) -> None:
    if count > _MOST_ROWS:
        terminal.write_line(f"… and {count - _MOST_ROWS:,} that did no worse; results.jsonl has them all")


def download_progress(item: pytest.Item) -> Callable[[str, int, int], None]:
    """Return what shows a download that takes longer than a second, on a terminal; elsewhere it does nothing."""
    terminal = item.config.pluginmanager.getplugin("terminalreporter")
    capture = item.config.pluginmanager.getplugin("capturemanager")
    if terminal is None or capture is None or not terminal.isatty:
        return lambda name, done, total: None
    next_time, shown = time.monotonic() + 1.0, False

    def show(name: str, done: int, total: int) -> None:
        nonlocal next_time, shown
        now, ended = time.monotonic(), done == total
        if now < next_time and not (shown and ended):
            return
        next_time, shown = now + 0.2, True  # seconds
        share = f"{done / total:4.0%} of {format_quantity(total, 'B')}" if total else format_quantity(done, "B")
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.rewrite("" if ended else f"fetching {name}: {share}", erase=True)
            if ended:  # the line that the item's result goes to
                terminal.pytest_runtest_logstart(item.nodeid, item.location)

    return show
