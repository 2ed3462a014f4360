"""Registry of quantities: everything that is measured, limited, compared and shown.

The manifest's schema, the estimates, the limits, the tables, the JUnit properties and the defaults
of upgrades are made from ``QUANTITIES``. A new quantity is a row of ``table.py``; a task computes
the quantities of accuracy.
"""

from __future__ import annotations

from pytest_mlms.core.quantities.quantity import (
    Column,
    ProcessEstimator,
    ProcessValues,
    Quantity,
    Samples,
    UpgradeRule,
    percentile,
)
from pytest_mlms.core.quantities.table import (
    ACCURACY,
    AGREEMENT,
    PERFORMANCE,
    SOAK,
    UPGRADE,
    accuracy_quantity,
)
from pytest_mlms.core.records import Kind

__all__ = [
    "QUANTITIES",
    "Column",
    "ProcessEstimator",
    "ProcessValues",
    "Quantity",
    "UpgradeRule",
    "accuracy_quantity",
    "percentile",
    "quantities_of",
    "register",
    "upgrade_rules",
]

_ENTRIES = [*ACCURACY, *UPGRADE, *PERFORMANCE, *SOAK, *AGREEMENT]

QUANTITIES: dict[str, Quantity] = {quantity.name: quantity for quantity in _ENTRIES}
"""Name -> quantity, in the order of schemas, tables and documents.

An entry that is added before other modules of pytest_mlms are imported is taken up everywhere.
"""


def quantities_of(kind: Kind) -> list[Quantity]:
    """Return the quantities that items of this kind measure."""
    return [quantity for quantity in QUANTITIES.values() if quantity.kind == kind]


def upgrade_rules(samples: Samples | None = "rounds") -> dict[str, UpgradeRule]:
    """Return the default rules of upgrades by quantity, for comparisons over these samples.

    None stands for all samples.
    """
    rules = {}
    for name, quantity in QUANTITIES.items():
        rule = quantity.upgrade
        if rule is not None and samples in (None, rule.samples):
            rules[name] = rule
    return rules


def register(quantity: Quantity) -> None:
    """Add a quantity; raises ValueError where another one has its name.

    It is taken up everywhere if it is added before other modules of pytest_mlms are imported, as
    from a task in the entry point group ``pytest_mlms.tasks``.
    """
    if QUANTITIES.setdefault(quantity.name, quantity) != quantity:
        raise ValueError(f"there is a quantity {quantity.name!r} already; choose another name")
