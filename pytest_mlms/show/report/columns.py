"""Tables of the terminal: their titles, and the cells that an item has in their columns.

The columns of estimates are those of the registry of quantities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from statistics import fmean
from typing import NamedTuple

from pytest_mlms.core.quantities import QUANTITIES, quantities_of
from pytest_mlms.core.records import Comparison, Kind, main_comparison
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import format_change, percent, spread_text
from pytest_mlms.keep.results.line import EstimateRecord, OwnQuantity
from pytest_mlms.measure.evaluate.limits import worst
from pytest_mlms.measure.evaluate.steadiness import LARGE_WAIT
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import NONE, estimate_text, value_text
from pytest_mlms.show.report.table import GiveWay

NO_LIMIT = "no limit"
"""Shown in place of a verdict where no limit judges what a table shows of an item."""

OWN_TITLE = "mlms: quantities of own tests, worst verdicts first"
"""Title of the table of what users' tests measured."""

Cell = Callable[[ItemView], str]
"""Returns the text of a column's cell."""


class Table(NamedTuple):
    """A table of the items of one kind: the cells of its columns by header.

    ``same_stack_only`` leaves out upgrades from one stack to another. The limits on ``quantities``
    decide the verdicts that a table of estimates shows; without any it shows those of the items.
    ``if_any`` are the columns that are shown where any item has them, as each task has other
    quantities, and GPUs further ones. ``order`` is what goes first where the terminal is too
    narrow.
    """

    kind: Kind
    title: str
    columns: dict[str, Cell]
    same_stack_only: bool = False
    quantities: frozenset[str] = frozenset()
    if_any: frozenset[str] = frozenset()
    order: GiveWay = GiveWay(
        spare=("processes", "inputs", "rounds", "p90", "waited"),
        later=("growth a call", "imports", "load", "first call", "start"),
    )


def verdict_in(table: Table, item: ItemView) -> str:
    """Return the verdict on what a table shows of an item.

    It is the item's where its limits did not decide that, as for an expected failure.
    """
    limits = item.limits
    if not table.quantities or item.verdict is not worst([limit.verdict for limit in limits]):
        return item.verdict.value
    shown = [limit.verdict for limit in limits if limit.quantity in table.quantities]
    return worst(shown).value if shown else NO_LIMIT


def _value(quantity: str) -> Cell:
    """Show the estimate of a quantity, "-" where it is missing."""

    def cell(item: ItemView) -> str:
        estimate = item.estimates.get(quantity)
        if estimate is None or estimate.lacking:
            return NONE
        return value_text(estimate.value, estimate.unit)

    return cell


def _spread(quantity: str) -> Cell:
    """Show the estimate of a quantity, and half of its interval."""
    value_cell = _value(quantity)

    def cell(item: ItemView) -> str:
        estimate = item.estimates.get(quantity)
        spread = _spread_text(estimate) if estimate else ""
        return f"{value_cell(item)}{spread}"

    return cell


def _spread_text(measured: EstimateRecord | OwnQuantity) -> str:
    spread = spread_text(measured.value, measured.low, measured.high)
    return f" {spread}" if spread else ""


def _waited(item: ItemView) -> str:
    """Show the share of the time that processes waited for a core, "-" where it is small."""
    shares = [process.waited for process in item.processes if process.waited is not None]
    if not shares or fmean(shares) < LARGE_WAIT:
        return NONE
    return percent(fmean(shares), ".0f")


def _interval(quantity: str) -> Cell:
    """Show the estimate of a quantity with its interval, "-" where it is missing."""
    return lambda item: estimate_text(item.estimates.get(quantity))


def own_columns(items: Iterable[ItemView]) -> dict[str, Cell]:
    """Return the name of the test, and a column for each quantity of users' tests in ``items``."""
    names: dict[str, None] = {}
    for item in items:
        names.update(dict.fromkeys(item.quantities))
    return {"test": _test_of, **{name: _own(name) for name in names}}


def _test_of(item: ItemView) -> str:
    return item.nodeid.rpartition("::")[2].partition("[")[0]


def _own(name: str) -> Cell:
    def cell(item: ItemView) -> str:
        quantity = item.quantities.get(name)
        if quantity is None:
            return NONE
        return f"{value_text(quantity.value, quantity.unit)}{_spread_text(quantity)}"

    return cell


_FORMS = {"value": _value, "spread": _spread, "interval": _interval}


def _inputs(item: ItemView) -> str:
    """Show the inputs of the dataset, over which all quantities of a task are estimated."""
    estimate = next(iter(item.estimates.values()))
    return f"{estimate.replicates:,}"


def _spent(item: ItemView) -> str:
    return f"{sum(item.seconds.values()):.1f} s" if item.seconds else NONE


def _of_latency(show: Callable[[Comparison], str]) -> Cell:
    """Show something of the comparison of latency or of queries', "-" where there is none."""

    def cell(item: ItemView) -> str:
        compared = main_comparison(item.comparisons)
        return NONE if compared is None else show(compared)

    return cell


def _share_or_none(share: float, sign: str = "") -> str:
    return NONE if math.isnan(share) else f"{sign}{percent(share, '.2g')}"


_MORE_COLUMNS: dict[str, dict[str, Cell]] = {
    "latency and throughput": {"waited": _waited},
    "queries under load": {"waited": _waited},
    "start-up and memory": {"processes": lambda item: str(len(item.processes))},
}
"""Title of a table of performance -> its columns that show no quantity."""

_UPGRADES = Table(
    "upgrade",
    "upgrades, latency",
    {
        "A": _of_latency(lambda one: format_quantity(one.a, one.unit)),
        "B": _of_latency(lambda one: format_quantity(one.b, one.unit)),
        "B / A": _of_latency(format_change),
        "tolerance": _of_latency(lambda one: percent(one.tolerance)),
        "spent": _spent,
    },
    order=GiveWay(spare=("spent",), later=("A", "B"), main="B / A"),
)

_NOISE = Table(
    "upgrade",
    "noise of this machine",
    {
        "tolerance": _of_latency(lambda one: percent(one.tolerance)),
        "noise floor": _of_latency(lambda one: _share_or_none(one.floor, "±")),
        "finds from": _of_latency(lambda one: _share_or_none(one.detectable)),
        "rounds": lambda item: str(len(item.rounds)),
    },
    same_stack_only=True,
)

_KINDS: tuple[Kind, ...] = ("accuracy", "agreement", "performance", "soak")


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
        judged = _judged_in(table, is_first)
        made.append(table._replace(quantities=judged, if_any=_if_any(table)))
    return made


def _if_any(table: Table) -> frozenset[str]:
    if table.kind == "accuracy":
        return frozenset(table.columns)
    columns = [quantity.column for quantity in quantities_of(table.kind) if quantity.of_gpu]
    return frozenset(["waited", *(column.title for column in columns if column is not None)])


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


TABLES = [table for kind in _KINDS for table in _estimate_tables(kind)] + [_UPGRADES, _NOISE]
"""Tables in the order in which they are shown."""
