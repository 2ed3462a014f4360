"""The gate's rule on a change over rounds, for a Python without scipy.

pytest_mlms/decide/upgrade/round_estimate.py has the same, but for trimmed means: these decide
earlier.
"""

import math
from typing import NamedTuple, Sequence

LEAST_ROUNDS = 6
ROUNDS_TO_FAIL = 8
MOST_ROUNDS = 12

TO_FAIL = (225.556, 18.783, 9.0796, 6.5416, 5.4516, 4.8601, 4.4928, 4.2439, 4.0646, 3.9295, 3.8242)
TO_PASS = (26.4798, 6.334, 4.2394, 3.5392, 3.1987, 2.9993, 2.8689, 2.7771, 2.7092, 2.6568, 2.6153)
"""Quantiles of Student's t by degrees of freedom from 1 on, for the risks of a look."""


class Change(NamedTuple):
    """A mean over rounds of how much worse the new side is, its interval, and what is allowed.

    ``low`` says whether it is worse by more, ``high`` whether it is not.
    """

    mean: float
    low: float
    high: float
    limit: float
    rounds: int

    @property
    def is_worse(self) -> bool:
        """True if it is surely worse by more than the limit."""
        return self.low > self.limit and self.rounds >= ROUNDS_TO_FAIL

    @property
    def is_fine(self) -> bool:
        """True if it is surely not."""
        return self.high < self.limit and self.rounds >= LEAST_ROUNDS

    @property
    def is_decided(self) -> bool:
        """True if it is either."""
        return self.is_worse or self.is_fine


def change_of(values: Sequence[float], limit: float) -> Change:
    """Return the mean of the values of rounds, with Student's interval."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return Change(mean, -math.inf, math.inf, limit, count)
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count)
    low, high = (quantiles[count - 2] * error for quantiles in (TO_FAIL, TO_PASS))
    return Change(mean, mean - low, mean + high, limit, count)
