"""Quantities of accuracy, of all tasks; docs/tasks.md says which task has which of them."""

from __future__ import annotations

from typing import Literal

from pytest_mlms.quantities.quantity import Column, Quantity, UpgradeRule

__all__ = ["ACCURACY", "accuracy_quantity"]


def accuracy_quantity(
    name: str,
    description: str,
    column: Column | None = None,
    *,
    unit: str = "fraction",
    better: Literal["lower", "higher"] = "higher",
    tolerance: float = 0.01,
) -> Quantity:
    """Return a quantity of accuracy, which a manifest limits under its name.

    ``tolerance`` is that of an upgrade, as ``UpgradeRule`` says. The other arguments are those of
    ``Quantity``.
    """
    return Quantity(
        name=name,
        unit=unit,
        better=better,
        kind="accuracy",
        description=description,
        limit_key=name,
        upgrade=UpgradeRule(tolerance=tolerance, samples="inputs"),
        column=column,
    )


def _column(table: str, title: str) -> Column:
    return Column(table, f"{title} (interval)", "interval")


ACCURACY = [
    accuracy_quantity(
        "top1",
        "share of inputs whose label is the best class",
        _column("accuracy", "top-1"),
    ),
    accuracy_quantity(
        "top5",
        "share of inputs whose label is among the five best classes",
        _column("accuracy", "top-5"),
    ),
    accuracy_quantity(
        "f1_macro",
        "mean of the classes' F1 scores, over the classes that are a label or a best class",
    ),
]
"""Quantities that tasks compute from outputs and labels, in the order of tables."""
