"""Trace tables of the terminal: their columns, and the notes below them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from pytest_mlms.core.text import visible
from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.trace import BY_LAYER, LEVELS
from pytest_mlms.measure.trace.records import TraceRun, TraceSummary
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import NONE
from pytest_mlms.show.report.table import KEEP

TIME_TITLE = "mlms: where the time went"
OVERHEAD_TITLE = "mlms: overhead of tracing each level, over an untraced call"

_NAME_WIDTH = 24  # of a layer, whose end says most
_MOST_NAMED = 3  # missing counters in a note; the item's results have all of them


class TracedItem(NamedTuple):
    """The framework of an item, and the summary of its trace."""

    framework: str
    summary: TraceSummary


class _Note(NamedTuple):
    """Something that is missing in the tables, and why."""

    missing: str
    reason: str


Columns = dict[str, Callable[[ItemView], str]]


def time_columns(items: Sequence[ItemView]) -> Columns:
    """Return the columns of the table of what was found, each a function of an item."""
    columns = {
        "untraced": _column(_untraced),
        "in layers": _column(_in_layers),
        "slowest layer": _column(_slowest_layer),
    }
    if any(item.summary.gpu for item in _traced_items(items)):
        columns["GPU busy"] = _column(_gpu_busy)
    return columns


def overhead_columns(items: Sequence[ItemView]) -> Columns:
    """Return a column for each level whose overhead was measured in one of the items."""
    traced = _traced_items(items)
    columns: Columns = {}
    for level in (*LEVELS[2:], BY_LAYER):
        if any(_overhead(item, level) is not None for item in traced):
            title = "+" + level.replace("+", " +")
            columns[title] = _column(_overhead_cell(level))
    return columns


def note_lines(items: Sequence[ItemView]) -> list[str]:
    """Return what is missing in the tables of these items, and why."""
    return notes_on(_traced_items(items))


def notes_on(items: Sequence[TracedItem]) -> list[str]:
    """Return what is missing in the traces and why, each once with the number of items."""
    counts: dict[_Note, int] = {}
    for item in items:
        for note in dict.fromkeys(_notes(item)):
            counts[note] = counts.get(note, 0) + 1
    lines = []
    for note, count in counts.items():
        items_text = "1 item" if count == 1 else f"{count} items"
        lines.append(visible(f"{note.missing} in {items_text}: {note.reason}"))
    return lines


def _traced_items(items: Iterable[ItemView]) -> list[TracedItem]:
    return [TracedItem(item.framework, item.trace) for item in items if item.trace is not None]


def _column(cell: Callable[[TracedItem], str]) -> Callable[[ItemView], str]:
    """Return a column of items; "-" for one without a trace."""

    def cell_of_item(item: ItemView) -> str:
        traced = _traced_items([item])
        return cell(traced[0]) if traced else NONE

    return cell_of_item


def _untraced(item: TracedItem) -> str:
    """Return the latency without probes in the run of the layers, else in that of the model.

    That run counts if its calls without probes are as users' are.
    """
    found = item.summary.runs[0]
    for run in item.summary.runs_at("layer"):
        if not run.void and run.plain_us is not None and not run.serialised:
            found = run
    return _time(found.plain_us)


def _in_layers(item: TracedItem) -> str:
    """Return the time in layers, that of the traced call around them, and the share."""
    summary = item.summary
    if summary.coverage is None:
        return NONE
    share = f"{summary.coverage:.0%}"
    if summary.layers_us is None:
        return share
    return f"{_time(summary.layers_us)} of{KEEP}{_time(summary.call_us)} {share}"


def _time(us: float | None) -> str:
    if us is None:
        return NONE
    return format_quantity(us / 1e6, "s").replace(" ", KEEP)


def _slowest_layer(item: TracedItem) -> str:
    if not item.summary.slowest:
        return NONE
    layer = item.summary.slowest[0]
    name = layer.name
    if len(name) > _NAME_WIDTH:
        name = f"…{name[1 - _NAME_WIDTH :]}"
    return f"{name} {layer.share:.0%}"


def _gpu_busy(item: TracedItem) -> str:
    """Return the time in which a GPU works during a call, and its share of one without probes."""
    gpu = item.summary.gpu
    if gpu is None:
        return NONE
    untraced = item.summary.runs[0].plain_us
    share = f"{KEEP}{gpu.busy_us / untraced:.0%}" if untraced else ""
    return _time(gpu.busy_us) + share


def _overhead(item: TracedItem, level: str) -> float | None:
    """Return the overhead of the last run of a level that counts."""
    overhead = None
    for run in item.summary.runs_at(level):
        if not run.void:
            overhead = run.overhead
    return overhead


def _overhead_cell(level: str) -> Callable[[TracedItem], str]:
    def cell(item: TracedItem) -> str:
        overhead = _overhead(item, level)
        if overhead is None:
            return NONE
        return f"{100 * overhead:+.0f}{KEEP}%"

    return cell


def _notes(item: TracedItem) -> Iterator[_Note]:
    summary = item.summary
    for level, reason in summary.unseen.items():
        yield _Note(f"nothing to see at level {level}", reason)
    for level, reason in summary.faults.items():
        yield _Note(f"cut short at level {level}", reason)
    yield from _missing_counters(summary.runs)
    if {"layer", "hardware"} <= set(summary.levels):
        yield from _missing_layer_counters(item)


def _missing_counters(runs: Iterable[TraceRun]) -> Iterator[_Note]:
    """Yield the counters that available probes could not read, those of one reason together."""
    names_of: dict[str, dict[str, None]] = {}
    for run in runs:
        for status in run.probes:
            for name, reason in status.missing.items() if status.available else ():
                names_of.setdefault(reason, {})[name] = None
    for reason, found in names_of.items():
        names = [*found]
        others = len(names) - _MOST_NAMED
        if others > 1:
            names = [*names[: _MOST_NAMED - 1], f"{names[_MOST_NAMED - 1]} and {others} others"]
        yield _Note(f"without {', '.join(names)}", reason)


def _missing_layer_counters(item: TracedItem) -> Iterator[_Note]:
    """Yield why there are no counters by layer, where layers were observed."""
    profilers = []
    for run in item.summary.runs_at("layer"):
        profilers += [status for status in run.probes if status.probe == "layers"]
    available = any(status.available for status in profilers)
    stepwise = any(status.stepwise for status in profilers)
    if available and not stepwise:
        reason = f"{item.framework} runs all layers in one call"
        yield _Note("no counters by layer", reason)
    for run in item.summary.runs_at(BY_LAYER):
        if run.void:
            reasons = [status.reason for status in run.probes if status.reason]
            yield _Note("no counters by layer", "; ".join(reasons))
