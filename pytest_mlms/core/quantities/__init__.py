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
    UpgradeRule,
    percentile,
)
from pytest_mlms.core.quantities.table import (
    QUANTITIES,
    accuracy_quantity,
    quantities_of,
    register,
    upgrade_rules,
)

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
