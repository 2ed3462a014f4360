"""The texts of a question: an objective, and limits. All functions raise ValueError with advice."""

from __future__ import annotations

import math
import re
from pathlib import Path

from pytest_mlms.core.quantities import QUANTITIES, Quantity
from pytest_mlms.core.records import Limit, Place
from pytest_mlms.core.units import UNITS, parse_quantity

PRICE = Quantity(
    "price", "", "lower", "performance", "the price of a million inputs on a host of a fleet"
)
"""An objective that nothing measures: throughput and the price of an hour tell it."""

_LIMIT = re.compile(r"\s*(\w+)\s*(<=|>=|<|>|=)\s*(.+?)\s*")
_TARGET = re.compile(r"\s*(max|min)\s+(\w+)\s*")
_BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_NEAR = 4  # letters in which names are alike
_MOST_NAMES = 8


def parse_objective(text: str) -> Quantity:
    """Return the quantity of an objective that processes differ in, such as ``max throughput``."""
    if text.split() == ["min", PRICE.name]:
        return PRICE
    quantity = parse_target(text)
    if quantity.kind != "performance" or quantity.estimator is None:
        advice = "write one that processes differ in, such as throughput, and limit this one"
        raise ValueError(f"{quantity.name} is the same in each process; {advice}")
    return quantity


def parse_target(text: str) -> Quantity:
    """Return the quantity of any objective, such as ``max top1``."""
    found = _TARGET.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no objective; write max or min and a name")
    quantity = _known(found[2])
    wanted = "max" if quantity.better == "higher" else "min"
    if found[1] != wanted:
        raise ValueError(f"more {quantity.name} is not the aim; write {wanted}")
    return quantity


def objective_named(name: str) -> Quantity:
    """Return the quantity of an objective by its name."""
    return PRICE if name == PRICE.name else QUANTITIES[name]


def parse_limits(text: str) -> list[Limit]:
    """Return limits, such as ``latency_p99 <= 15 ms, top1 >= 75 %``; one for a quantity."""
    found: dict[str, Limit] = {}
    for part in filter(str.strip, text.split(",")):
        limit = _parse_limit(part)
        if limit.quantity in found:
            raise ValueError(f"{limit.quantity} has two limits; write one")
        found[limit.quantity] = limit
    return list(found.values())


def parse_budget(text: str) -> float:
    """Return the seconds of a budget, such as ``10min``."""
    found = _BUDGET.fullmatch(text)
    if not found or not float(found[1]):
        raise ValueError(f"{text!r} is no time; write it as in 90s, 10min or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def _parse_limit(text: str) -> Limit:
    found = _LIMIT.fullmatch(text)
    if not found:
        advice = "write a name, <= or >=, and a value, as in 'latency_p99 <= 15 ms'"
        raise ValueError(f"{text.strip()!r} is no limit; {advice}")
    name, sign, value = found.groups()
    quantity = _known(name)
    if not _is_limitable(quantity):
        advice = f"it is measured by items of {quantity.kind}, under load or in batches"
        raise ValueError(f"{name} can't be a limit here: {advice}")
    wanted = "<=" if quantity.bound == "max" else ">="
    if sign[0] != wanted[0]:
        raise ValueError(f"{name} {sign} {value} asks for the worse; write {name} {wanted} {value}")
    try:
        number = parse_quantity(value, quantity.unit) if quantity.unit in UNITS else float(value)
        if not 0 <= number < math.inf:
            raise ValueError(f"{value!r} is out of range; write a finite number, 0 or more")
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    return Limit(name, number, Place(Path("--subject-to"), 1))


def _known(name: str) -> Quantity:
    """Return the quantity of a name."""
    quantity = QUANTITIES.get(name)
    if quantity is None:
        known = [each.name for each in QUANTITIES.values() if _is_limitable(each)]
        near = [each for each in known if name[:_NEAR] in each] or known
        advice = f"write one of {', '.join(near[:_MOST_NAMES])}"
        raise ValueError(f"there is no quantity {name!r}; {advice}")
    return quantity


def _is_limitable(quantity: Quantity) -> bool:
    if not quantity.limit_key or quantity.name == "batch_agreement":
        return False
    is_timed = quantity.kind == "performance" and quantity.estimator is not None
    return quantity.kind == "accuracy" or is_timed
