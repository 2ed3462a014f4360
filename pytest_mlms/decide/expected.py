"""The list of limits and gates that an item must decide, made before it measures.

What is on it and wasn't decided leaves the item INCONCLUSIVE, whatever the reason.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_mlms.config import Config
from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.quantities.table import SOAK_LIMITS
from pytest_mlms.core.records import Limit
from pytest_mlms.manifest.scenarios import Peak, measures
from pytest_mlms.options import read_share
from pytest_mlms.provide.cases import Case

_OF_DATASET = ("group_latency", "slow_inputs")
"""Quantities that drawn inputs of one shape don't have; another case times the dataset."""


class Gate(NamedTuple):
    """How much worse a candidate may be, and the line or option that says so; "" for a default."""

    tolerance: float
    place: str = ""


def expected(case: Case, config: Config) -> tuple[Limit, ...]:
    """Return the limits that an item must decide.

    That is each limit that judges it, those of its scenario, and those that a soak has by default.
    Of an upgrade it is the agreement of outputs, and each gate with its tolerance.
    """
    if case.kind == "upgrade":
        gates = gates_of(case, config)
        limits = [Limit(name, gate.tolerance, case.place()) for name, gate in gates.items()]
        return (Limit("agreement", 1.0, case.place()), *limits)
    limits = list(case.limits)
    if case.kind == "soak":
        named = {limit.quantity for limit in limits}
        for name, value in SOAK_LIMITS.items():
            if name not in named:
                limits.append(Limit(name, value, case.place(), default=True))
    if not isinstance(case.load, Peak):
        limits[:0] = case.own_limits
    return tuple(limits)


def gates_of(case: Case, config: Config) -> dict[str, Gate]:
    """Return the gates of an upgrade, each with its tolerance, by quantity.

    Tolerances are those of the command line, else the manifest's, else the default. Beside what
    either names it is latency, under load that of queries, or their peak. A quantity that other
    cases of the model measure and this one doesn't is left out.
    """
    main = main_quantity(case)
    gates = {main: Gate(upgrade_rules()[main].tolerance)}
    for name, share in case.loaded.manifest.thresholds.upgrade.tolerances().items():
        gates[name] = Gate(share, _place(case, name))
    if config.tolerance is not None:
        gates[main] = Gate(config.tolerance, "--mlms-tolerance")
    for text in config.gate:
        name, _, written = text.partition("=")
        gates[name] = Gate(read_share(written), "--mlms-gate")
    return {name: gate for name, gate in gates.items() if _is_measured(name, case)}


def main_quantity(case: Case) -> str:
    """Return the quantity that an upgrade is about."""
    if case.load is None:
        return "latency"
    return "peak_rate" if isinstance(case.load, Peak) else "query_latency"


def _is_measured(name: str, case: Case) -> bool:
    is_of_dataset = QUANTITIES[name].kind == "accuracy" or name in _OF_DATASET
    if is_of_dataset and case.shape is not None and case.loaded.manifest.dataset is not None:
        return False
    return measures(case.kind, name, case.load, case.device)


def _place(case: Case, name: str) -> str:
    """Return the manifest's line that sets the tolerance of a quantity."""
    rule = QUANTITIES[name].upgrade
    key = rule.key if rule and rule.key else name
    return str(case.loaded.place("thresholds", "upgrade", key))
