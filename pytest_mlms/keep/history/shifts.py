"""Records of shifts: changes of the level of a series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
