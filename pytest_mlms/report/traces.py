"""What the terminal says of traces, as columns of tables and as lines below them.

Pure functions of results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pytest_mlms.report.table import KEEP
from pytest_mlms.trace import LEVELS
from pytest_mlms.trace.counters import BY_LAYER
from pytest_mlms.units import format_quantity

__all__ = ["ADDED", "WHERE", "added_columns", "note_lines", "where_columns"]

Result = Mapping[str, Any]
Columns = dict[str, Callable[[Result], str]]

WHERE = "mlms: where the time went"
ADDED = "mlms: what watching each level adds to an untraced call"

_NAME = 24  # characters of a layer's, whose end says most
_NAMED = 3  # counters of those that are lacking; the item's line has all of them


def where_columns() -> Columns:
    """Return the columns of what was found."""
    return {"untraced": _untraced, "in layers": _in_layers, "slowest layer": _slowest}


def added_columns(results: Sequence[Result]) -> Columns:
    """Return a column for each run whose overhead one of the results has.

    Those of levels, then counters by layer.
    """
    levels = [
        level
        for level in (*LEVELS[2:], BY_LAYER)
        if any(_overhead(one, level) is not None for one in results)
    ]
    return {"+" + level.replace("+", " +"): _added(level) for level in levels}


def note_lines(results: Sequence[Result]) -> list[str]:
    """Return what is lacking in the tables and why, each once, whichever items share it."""
    count: dict[tuple[str, str], int] = {}
    for result in results:
        for note in dict.fromkeys(_notes(result)):
            count[note] = count.get(note, 0) + 1
    return [
        f"{what} in {many} item{'s' * (many != 1)}: {why}" for (what, why), many in count.items()
    ]


def _untraced(result: Result) -> str:
    plain = result["trace"]["runs"][0].get("plain_us")
    return "-" if plain is None else format_quantity(plain / 1e6, "s").replace(" ", KEEP)


def _in_layers(result: Result) -> str:
    coverage = result["trace"]["coverage"]
    return "-" if coverage is None else f"{coverage:.0%}"


def _slowest(result: Result) -> str:
    layers = result["trace"]["slowest"]
    if not layers:
        return "-"
    name = layers[0]["name"]
    return f"{name if len(name) <= _NAME else '…' + name[1 - _NAME :]} {layers[0]['share']:.0%}"


def _overhead(result: Result, level: str) -> float | None:
    runs = [run for run in _runs(result, level) if not run.get("void")]
    return runs[-1].get("overhead") if runs else None


def _added(level: str) -> Callable[[Result], str]:
    def cell(result: Result) -> str:
        overhead = _overhead(result, level)
        return "-" if overhead is None else f"{100 * overhead:+.0f}{KEEP}%"

    return cell


def _runs(result: Result, level: str) -> list[Mapping[str, Any]]:
    return [run for run in result["trace"]["runs"] if run["level"] == level]


def _notes(result: Result) -> Iterator[tuple[str, str]]:
    trace = result["trace"]
    for level, reason in trace["unseen"].items():
        yield f"nothing to see at level {level}", reason
    for level, reason in trace.get("faults", {}).items():
        yield f"cut short at level {level}", reason
    yield from _not_counted(word for run in trace["runs"] for word in run.get("probes", ()))
    if {"layer", "hardware"} <= set(trace["levels"]):
        yield from _not_by_layer(result)


def _not_counted(words: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what probes that watched couldn't read, those of one reason together."""
    names: dict[str, dict[str, None]] = {}
    for word in words:
        for name, reason in word["missing"].items() if word["available"] else ():
            names.setdefault(reason, {})[name] = None
    for reason, same in names.items():
        others = f" and {len(same) - _NAMED} others" if len(same) > _NAMED + 1 else ""
        yield f"without {', '.join(list(same)[: _NAMED if others else None])}{others}", reason


def _not_by_layer(result: Result) -> Iterator[tuple[str, str]]:
    """Yield why there are no counters by layer, where layers were seen."""
    words = [
        word
        for run in _runs(result, "layer")
        for word in run["probes"]
        if word["probe"] == "layers"
    ]
    if any(word["available"] for word in words) and not any(word.get("stepwise") for word in words):
        yield "no counters by layer", f"{result['framework']} runs all layers in one call"
    for run in _runs(result, BY_LAYER):
        if run.get("void"):
            yield (
                "no counters by layer",
                "; ".join(word["reason"] for word in run["probes"] if word["reason"]),
            )
