"""What a person sees: the tables at the end of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from pytest_mlms.records import Comparison, Verdict, comparison_of
from pytest_mlms.report.table import KEEP, format_table
from pytest_mlms.report.traces import ADDED, WHERE, added_columns, note_lines, where_columns
from pytest_mlms.units import format_quantity
from pytest_mlms.upgrade.explanation import change_of, point_of, sides_of

__all__ = ["write_tables"]

Result = Mapping[str, Any]

_MOST_ROWS = 100
_WIDTH = 100
_WORST_FIRST = [verdict.value for verdict in Verdict]
_WITHOUT = ("ERROR", "INVALID", "FAILED")
_COLOURS = {
    **{name: {"red": True} for name in ("ERROR", "INVALID", "FAILED", "REGRESSED")},
    "INCONCLUSIVE": {"yellow": True},
    "IMPROVED": {"green": True},
}


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


def _latency(result: Result) -> Comparison | None:
    return next(
        (comparison_of(one) for one in result["comparisons"] if one["quantity"] == "latency"), None
    )


def _of_latency(show: Callable[[Comparison], str]) -> Callable[[Result], str]:
    def cell(result: Result) -> str:
        latency = _latency(result)
        return show(latency) if latency else "-"

    return cell


def _decided_by(result: Result) -> str:
    """What is worse, or what keeps the item open.

    Nothing where it is latency alone, whose columns are there.
    """
    found = [
        one["quantity"]
        for one in result["comparisons"]
        if one["verdict"] == result["verdict"]
        and (one["gate"] or one["verdict"] == Verdict.REGRESSED.value)
    ]
    rest = [name for name in found if name != "latency"]
    shown = (
        found
        if rest and result["verdict"] in (Verdict.REGRESSED.value, Verdict.INCONCLUSIVE.value)
        else []
    )
    return ", ".join(shown)


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
        "agreement",
        "agreement with the reference",
        {
            "of tolerance": lambda result: _value(result, "deviation"),
            "largest difference": lambda result: _value(result, "difference_max"),
            "same top-1": lambda result: _value(result, "same_top1"),
            "largest KL": lambda result: _value(result, "kl_max"),
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
    (
        "upgrade",
        "upgrades, latency",
        {
            "A": _of_latency(lambda latency: format_quantity(latency.a, "s")),
            "B": _of_latency(lambda latency: format_quantity(latency.b, "s")),
            "B / A": _of_latency(lambda latency: change_of(latency, KEEP)),
            "spent": lambda result: (
                f"{sum(result['seconds'].values()):.1f} s" if "seconds" in result else "-"
            ),
        },
    ),
    (
        "upgrade",
        "noise of this machine",
        {
            "tolerance": _of_latency(lambda latency: f"{100 * latency.tolerance:.3g} %"),
            "noise floor": _of_latency(lambda latency: f"±{100 * latency.floor:.2g} %"),
            "finds from": _of_latency(lambda latency: f"{100 * latency.detectable:.2g} %"),
            "rounds": lambda result: str(len(result["rounds"])),
        },
    ),
]


def write_tables(terminal: pytest.TerminalReporter, results: Sequence[Result]) -> None:
    """Write the tables, the worst item first.

    More rows than a person reads are counted, not shown.
    """
    ordered = sorted(results, key=_badness)
    width = terminal._tw.fullwidth if terminal.isatty else _WIDTH  # a log has no width of its own
    for kind, title, columns in _TABLES:
        measured = [
            result
            for result in ordered
            if result["kind"] == kind and (result.get("estimates") or _compared(result))
        ]
        if title == "noise of this machine":
            measured = [
                result
                for result in measured
                if result["against"]["name"] == result["stack"]["name"]
            ]
        _write_titled(terminal, f"mlms: {title}, worst first", measured, columns, width)
    traced = [result for result in ordered if result.get("trace")]
    if traced:
        _write_traces(terminal, traced, width)
    for result in [
        result
        for result in ordered
        if not all(one["steady"] for one in result.get("processes") or ())
    ]:
        terminal.write_line(
            f"still getting faster when it was timed: {result['nodeid']}", yellow=True
        )
    bare = [r for r in ordered if not (r.get("estimates") or r.get("trace") or _compared(r))]
    unmeasured = [r for r in bare if r["verdict"] in _WITHOUT]
    if unmeasured:
        terminal.write_sep("-", "mlms: without a result")
        for result in unmeasured[:_MOST_ROWS]:
            terminal.write_line(f"{result['verdict']}  {result['nodeid']}", red=True)
        _write_rest(terminal, len(unmeasured))


def _write_titled(
    terminal: pytest.TerminalReporter,
    title: str,
    results: Sequence[Result],
    columns: Mapping[str, Any],
    width: int,
) -> None:
    if results:
        terminal.write_sep("-", title)
    for sides, alike in _by_sides(results).items():
        if sides:
            terminal.write_line(sides)
        _write_table(terminal, alike, columns, width)


def _by_sides(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return upgrades by what they compare, so that its long names are said once.

    What is none is together.
    """
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(sides_of(result) if _compared(result) else "", []).append(result)
    return found


def _compared(result: Result) -> bool:
    return bool(result.get("comparisons"))


def _write_traces(terminal: pytest.TerminalReporter, results: Sequence[Result], width: int) -> None:
    """Write where the time went, what it cost to see that, and what could not be seen."""
    for title, columns in ((WHERE, where_columns()), (ADDED, added_columns(results))):
        if columns:
            terminal.write_sep("-", title)
            _write_table(terminal, results, columns, width)
    for line in note_lines(results):
        terminal.write_line(line, yellow=True)


def _badness(result: Result) -> tuple[int, float]:
    margin = result.get("margin")
    return _WORST_FIRST.index(result["verdict"]), math.inf if margin is None else margin


def _write_table(
    terminal: pytest.TerminalReporter,
    results: Sequence[Result],
    columns: Mapping[str, Any],
    width: int,
) -> None:
    shown = results[:_MOST_ROWS]
    rows = [
        [
            *(result["verdict"], result["manifest"]["name"]),
            point_of(result) if _compared(result) else result["case"],
            *(cell(result) for cell in columns.values()),
        ]
        for result in shown
    ]
    header, *lines = format_table(["verdict", "model", "case", *columns], rows, width, left=3)
    for line in header:
        terminal.write_line(line, bold=True)
    for result, folded in zip(shown, lines, strict=True):
        for line in folded:
            terminal.write_line(line, **_COLOURS.get(result["verdict"], {}))
        decided_by = _decided_by(result) if _compared(result) else ""
        if decided_by:
            terminal.write_line(f"  {decided_by}", **_COLOURS.get(result["verdict"], {}))
    _write_rest(terminal, len(results))


def _write_rest(terminal: pytest.TerminalReporter, count: int) -> None:
    if count > _MOST_ROWS:
        terminal.write_line(
            f"… and {count - _MOST_ROWS:,} that did no worse; results.jsonl has them all"
        )
