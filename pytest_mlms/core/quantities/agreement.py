"""Quantities of the agreement with a reference framework."""

from __future__ import annotations

from pytest_mlms.core.quantities.quantity import Column, Quantity

AGREEMENT = [
    Quantity(
        name="deviation",
        unit="",
        better="lower",
        kind="agreement",
        description="largest difference from the reference, as a multiple of the tolerance",
        column=Column("agreement with the reference", "of tolerance"),
    ),
    Quantity(
        name="difference_max",
        unit="",
        better="lower",
        kind="agreement",
        description="largest difference of an element from the reference",
        column=Column("agreement with the reference", "largest difference"),
    ),
    Quantity(
        name="difference_mean",
        unit="",
        better="lower",
        kind="agreement",
        description="mean difference of the elements from the reference",
    ),
    Quantity(
        name="relative_difference_max",
        unit="",
        better="lower",
        kind="agreement",
        description="largest difference of an element as a share of the reference",
    ),
    Quantity(
        name="relative_difference_mean",
        unit="",
        better="lower",
        kind="agreement",
        description="mean difference of the elements as a share of the reference",
    ),
    Quantity(
        name="same_top1",
        unit="fraction",
        better="higher",
        kind="agreement",
        description="share of inputs with the same best class as by the reference",
        limit_key="top1",
        column=Column("agreement with the reference", "same top-1"),
    ),
    Quantity(
        name="kl_max",
        unit="nat",
        better="lower",
        kind="agreement",
        description="largest Kullback-Leibler divergence of an input's probabilities",
        limit_key="kl",
        column=Column("agreement with the reference", "largest KL"),
    ),
    Quantity(
        name="kl_mean",
        unit="nat",
        better="lower",
        kind="agreement",
        description="mean Kullback-Leibler divergence of the probabilities",
    ),
    Quantity(
        name="js_max",
        unit="nat",
        better="lower",
        kind="agreement",
        description="largest Jensen-Shannon divergence of an input's probabilities",
        limit_key="js",
    ),
    Quantity(
        name="js_mean",
        unit="nat",
        better="lower",
        kind="agreement",
        description="mean Jensen-Shannon divergence of the probabilities",
    ),
    Quantity(
        name="hellinger_max",
        unit="",
        better="lower",
        kind="agreement",
        description="largest Hellinger distance of an input's probabilities",
        limit_key="hellinger",
    ),
    Quantity(
        name="hellinger_mean",
        unit="",
        better="lower",
        kind="agreement",
        description="mean Hellinger distance of the probabilities",
    ),
]
"""Quantities that compare outputs with those of a reference."""
