"""Shifts, which are changes of the level of a series, and scales that values are compared on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.quantities.quantity import Quantity

_RISK = 3e-4  # of Student's test, two-sided, over all windows
_ORDER_SHARE = 1 / 3  # of the risk: that of the exact test of the points' order

NAMED = "named"
"""The kind of a change that the gate dismissed and no search has found: it moves no level."""


@dataclass(frozen=True)
class Sensitivity:
    """Differences of the level that matter, on the scale of the values.

    ``min_magnitude`` is the least one that is reported, and ``max_pvalue`` the probability of a
    report in a night without a change, if values are independent and normal. If ``exact`` is set,
    the quantity is computed and not timed: a series that never moved shifts by a single point.
    """

    min_magnitude: float
    exact: bool = False
    max_pvalue: float = _RISK

    @property
    def noise(self) -> float:
        """The least standard deviation that values are taken to have: 0.4 % for 2 %."""
        return self.min_magnitude / 5

    @property
    def order_risk(self) -> float:
        """The risk of the test of the points' order."""
        return self.max_pvalue * _ORDER_SHARE


@dataclass(frozen=True)
class Shift:
    """A change of level; places are indices of points.

    Attributes:
        first: The first point after it.
        found: The newest point when it was reported.
        old: The level before it.
        change: How much higher the level after it is.
        kind: A step from the points before, or drift from the begin of the level.
        undone: The first point at the old level again.
        accepted: True if it is not undone by a return, which is a shift of its own then.
    """

    first: int
    found: int
    old: float
    change: float
    kind: Literal["step", "drift"] = "step"
    undone: int | None = None
    accepted: bool = False

    @property
    def boundary(self) -> int:
        """The first point of the newest level."""
        return self.first if self.undone is None else self.undone

    @property
    def can_be_undone(self) -> bool:
        """True if a return to the old level ends this shift."""
        return self.undone is None and not self.accepted


@dataclass(frozen=True)
class Estimate:
    """A change of level with its 95 % interval, and the level before it."""

    old: float
    change: float
    low: float
    high: float


@dataclass(frozen=True)
class Sight:
    """The sight of a series on a step from its next point on, if its noise stays as it is.

    Attributes:
        points: Further points after which the step can be seen.
        change: The least one that is seen with them four times of five, on the scale of values.
        with_software: The same with one point, where the software changes, too.
    """

    points: int
    change: float
    with_software: float


_LEAST = 0.02
"""The least change that is reported, where the gate's tolerance is not larger."""

_LEAST_SHARE = 0.01
"""The same of shares of a whole, as a difference."""

_EXACT_KINDS = ("accuracy", "agreement")

_AGREEMENT_BASE = 1e-6
"""Differences that are small beside this one come from the order of float32's sums."""

_AGREEMENT_LEAST = math.log(2)
"""Differences from a reference are errors of rounding: less than a factor of two is no change."""

_LARGEST = 20.0
"""Larger changes, which few points leave open, are shown as this one."""

_LEAST_VALUE = 1e-12
"""Added to values, so that 0 has a logarithm."""

_LEAST_LOG = math.log(_LEAST_VALUE)


@dataclass(frozen=True)
class Scale:
    """Values as they are, for shares of a whole, or else logarithms of the value and a base.

    ``base`` is in the quantity's unit: values that are small beside it don't matter. A negative
    value of a user's quantity, such as a log-likelihood, has the logarithm of its size, below 0.
    """

    sensitivity: Sensitivity
    is_share: bool = False
    base: float = 0.0

    def of(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values on this scale, in their order."""
        if self.is_share:
            return values
        based = values + self.base
        sizes = np.log(np.abs(based) + _LEAST_VALUE) - _LEAST_LOG
        return np.asarray(np.sign(based) * sizes)

    def value(self, level: float) -> float:
        """Return a level of this scale in the quantity's unit."""
        if self.is_share:
            return level
        size = math.exp(abs(level) + _LEAST_LOG) - _LEAST_VALUE
        value = math.copysign(size, level) - self.base
        if self.base:
            value = max(value, 0.0)
        return value if abs(value) > _LEAST_VALUE else 0.0

    def share(self, change: float) -> float:
        """Return a change on this scale as a share of the value, or of the whole."""
        return change if self.is_share else math.expm1(min(change, _LARGEST))

    def ratio(self, before: float, after: float) -> float:
        """Return the ratio of two levels' values; 0 is the least one, and so is another sign's."""
        old, new = self.value(before), self.value(after)
        size = abs(new) if old * new >= 0 else 0.0
        return max(_LEAST_VALUE, size) / max(_LEAST_VALUE, abs(old))

    def ratios(self, before: float, low: float, high: float) -> list[float]:
        """Return the ends of the ratios to a level's value of those between two levels."""
        return sorted(self.ratio(before, level) for level in (low, high))


def scale_of(name: str, unit: str) -> Scale:
    """Return the scale of a quantity, which may be a user's own, and has this base unit."""
    quantity = QUANTITIES.get(name)
    if quantity is None:
        least = _LEAST_SHARE if unit == "fraction" else _LEAST
        return Scale(Sensitivity(least), is_share=unit == "fraction")
    exact = quantity.kind in _EXACT_KINDS
    if quantity.unit == "fraction":
        return Scale(Sensitivity(_tolerance(quantity, _LEAST_SHARE), exact), is_share=True)
    if quantity.kind == "agreement":
        return Scale(Sensitivity(_AGREEMENT_LEAST, exact), base=_AGREEMENT_BASE)
    least = max(_LEAST, math.log1p(_tolerance(quantity, _LEAST)))
    return Scale(Sensitivity(least, exact), base=_base(quantity))


def _tolerance(quantity: Quantity, default: float) -> float:
    rule = _rule_source(quantity).upgrade
    return rule.tolerance if rule else default


def _base(quantity: Quantity) -> float:
    rule = _rule_source(quantity).upgrade
    return rule.base if rule else 0.0


def _rule_source(quantity: Quantity) -> Quantity:
    """Return the quantity whose rule of upgrades holds: that of the same name, or of its turns."""
    if quantity.upgrade:
        return quantity
    for other in QUANTITIES.values():
        if other.upgrade and other.upgrade.estimate == quantity.name:
            return other
    return quantity
