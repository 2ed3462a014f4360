"""Tables of the terminal: their titles, and the cells that a result has in their columns.

The columns of estimates are those of the registry of quantities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

from pytest_mlms.evaluate.contention import LARGE_WAIT
from pytest_mlms.evaluate.limits import worst
from pytest_mlms.quantities import QUANTITIES, quantities_of
from pytest_mlms.records import Comparison, Kind, Verdict
from pytest_mlms.report.table import KEEP
from pytest_mlms.serialization import from_plain
from pytest_mlms.units import format_quantity
from pytest_mlms.upgrade.labels import format_change, percent
from pytest_mlms.views.numbers import interval_text, value_text

__all__ = [
    "NO_LIMIT",
    "OWN_TITLE",
    "TABLES",
    "Cell",
    "Result",
    "Table",
    "comparisons_of",
    "own_columns",
    "verdict_in",
]

NO_LIMIT = "no limit"
"""Shown in place of a verdict where no limit judges what a table shows of an item."""

OWN_TITLE = "mlms: quantities of own tests, worst verdicts first"
"""Title of the table of what users' tests measured."""

Result = Mapping[str, Any]
"""An item's line of results.jsonl."""

Cell = Callable[[Result], str]
"""Returns the text of a column's cell."""


class Table(NamedTuple):
    """A table of the items of one kind: the cells of its columns by header.

    ``same_stack_only`` leaves out upgrades from one stack to another. The limits on ``quantities``
    decide the verdicts that a table of estimates shows; without any it shows those of the items.
    """

    kind: Kind
    title: str
    columns: dict[str, Cell]
    same_stack_only: bool = False
    quantities: frozenset[str] = frozenset()


def verdict_in(table: Table, result: Result) -> str:
    """Return the verdict on what a table shows of an item.

    It is the item's where its limits did not decide that, as for an expected failure.
    """
    limits = result.get("limits")
    if not table.quantities or limits is None:
        return str(result["verdict"])
    if result["verdict"] != _worst([limit["verdict"] for limit in limits]):
        return str(result["verdict"])
    shown = [limit["verdict"] for limit in limits if limit["quantity"] in table.quantities]
    return _worst(shown) if shown else NO_LIMIT


def _worst(verdicts: Iterable[str]) -> str:
    return worst([Verdict(verdict) for verdict in verdicts]).value


def comparisons_of(result: Result) -> list[Comparison]:
    """Return the comparisons of an upgrade, [] where nothing was compared."""
    return from_plain(list[Comparison], result.get("comparisons") or [])


def _value(quantity: str) -> Cell:
    """Show the estimate of a quantity, "-" where it is missing."""

    def cell(result: Result) -> str:
        estimate = result["estimates"].get(quantity)
        if not estimate or estimate["lacking"]:
            return "-"
        return value_text(estimate["value"], estimate["unit"])

    return cell


def _spread(quantity: str) -> Cell:
    """Show the estimate of a quantity, how far its interval reaches above it, and a long wait."""
    value_cell = _value(quantity)

    def cell(result: Result) -> str:
        text = value_cell(result)
        estimate = result["estimates"].get(quantity)
        if not estimate or estimate["high"] is None or not estimate["value"]:
            return text + _wait(result)
        spread = estimate["high"] / estimate["value"] - 1
        return f"{text} ±{percent(spread, '.2g')}{_wait(result)}"

    return cell


def _wait(result: Result) -> str:
    """Return the share of the time that processes waited for a core; "" where it is small."""
    shares = []
    for process in result.get("processes") or ():
        if process.get("waited") is not None:
            shares.append(process["waited"])
    if not shares or fmean(shares) < LARGE_WAIT:
        return ""
    return f", waited {percent(fmean(shares), '.0f')}"


def _interval(quantity: str) -> Cell:
    """Show the estimate of a quantity with its interval, "-" where it is missing."""

    def cell(result: Result) -> str:
        estimate = result["estimates"].get(quantity)
        if not estimate or estimate["lacking"]:
            return "-"
        value, low, high = (estimate[key] for key in ("value", "low", "high"))
        return interval_text(value, low, high, estimate["unit"])

    return cell


def own_columns(results: Iterable[Result]) -> dict[str, Cell]:
    """Return a column for each quantity of users' own tests that ``results`` have."""
    names: dict[str, None] = {}
    for result in results:
        names.update(dict.fromkeys(result["quantities"]))
    return {name: _own(name) for name in names}


def _own(name: str) -> Cell:
    def cell(result: Result) -> str:
        quantity = result["quantities"].get(name)
        if quantity is None:
            return "-"
        text = format_quantity(quantity["value"], quantity["unit"])
        if quantity.get("high") is None or not quantity["value"]:
            return text
        spread = abs(quantity["high"] / quantity["value"] - 1)
        return f"{text} ±{percent(spread, '.2g')}"

    return cell


_FORMS = {"value": _value, "spread": _spread, "interval": _interval}


def _inputs(result: Result) -> str:
    """Show the inputs of the dataset, over which all quantities of a task are estimated."""
    estimate = next(iter(result["estimates"].values()))
    return f"{estimate['replicates']:,}"


def _processes(result: Result) -> str:
    return str(len(result["processes"]))


def _rounds(result: Result) -> str:
    return str(len(result["rounds"]))


def _spent(result: Result) -> str:
    if "seconds" not in result:
        return "-"
    return f"{sum(result['seconds'].values()):.1f} s"


def _of_latency(show: Callable[[Comparison], str]) -> Cell:
    """Show something of the comparison of latency, "-" where there is none."""

    def cell(result: Result) -> str:
        for compared in comparisons_of(result):
            if compared.quantity == "latency":
                return show(compared)
        return "-"

    return cell


def _baseline(latency: Comparison) -> str:
    return format_quantity(latency.a, latency.unit)


def _candidate(latency: Comparison) -> str:
    return format_quantity(latency.b, latency.unit)


def _change(latency: Comparison) -> str:
    return format_change(latency, KEEP)


def _tolerance(latency: Comparison) -> str:
    return percent(latency.tolerance)


def _noise_floor(latency: Comparison) -> str:
    return f"±{percent(latency.floor, '.2g')}"


def _detectable(latency: Comparison) -> str:
    return percent(latency.detectable, ".2g")


_MORE_COLUMNS: dict[str, dict[str, Cell]] = {
    "start-up and memory": {"processes": _processes},
}
"""Title of a table of performance -> its columns that show no quantity."""

_UPGRADES = Table(
    "upgrade",
    "upgrades, latency",
    {
        "A": _of_latency(_baseline),
        "B": _of_latency(_candidate),
        "B / A": _of_latency(_change),
        "spent": _spent,
    },
)

_NOISE = Table(
    "upgrade",
    "noise of this machine",
    {
        "tolerance": _of_latency(_tolerance),
        "noise floor": _of_latency(_noise_floor),
        "finds from": _of_latency(_detectable),
        "rounds": _rounds,
    },
    same_stack_only=True,
)

_KINDS: tuple[Kind, ...] = ("accuracy", "agreement", "performance")


def _estimate_tables(kind: Kind) -> list[Table]:
    """Return the tables of the quantities that items of ``kind`` estimate."""
    tables: dict[str, Table] = {}
    for name, quantity in QUANTITIES.items():
        column = quantity.column
        if column is not None and quantity.kind == kind:
            table = tables.setdefault(column.table, Table(kind, column.table, {}))
            table.columns[column.title] = _FORMS[column.form](name)
    made: list[Table] = []
    for table in tables.values():
        more = {"inputs": _inputs} if kind == "accuracy" else _MORE_COLUMNS.get(table.title, {})
        table.columns.update(more)
        is_first = not made
        made.append(table._replace(quantities=_judged_in(table, is_first)))
    return made


def _judged_in(table: Table, is_first: bool) -> frozenset[str]:
    """Return the quantities whose limits a table's verdicts are about.

    Those that have no column are among those of the first table of their kind.
    """
    names = set()
    for quantity in quantities_of(table.kind):
        column = quantity.column
        if column is None and is_first:
            names.add(quantity.name)
        if column is not None and column.table == table.title:
            names.add(quantity.name)
    return frozenset(names)


def _all_tables() -> list[Table]:
    tables = []
    for kind in _KINDS:
        tables += _estimate_tables(kind)
    return [*tables, _UPGRADES, _NOISE]


TABLES = _all_tables()
"""Tables in the order in which they are shown."""
