"""Kinds of fresh processes: whether they agree, or one stands apart: pure functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

_LEAST_GAP = math.log(1.1)  # between two kinds of processes
_APART = 4  # the gap between two kinds over what is inside of them: Dixon's ratio of 0.8


class ProcessKinds(NamedTuple):
    """Two kinds of processes: how many are of the slower (larger) one, and how much larger it is.

    ``larger`` is 0 where no two of the processes agree; ``ratio`` is then the largest value over
    the smallest.
    """

    larger: int
    processes: int
    ratio: float

    def __str__(self) -> str:
        times = f"{self.ratio:.3g} times"
        if self.larger == 0:
            return f"no two of {self.processes} processes agree (the largest is {times} the least)"
        alone = f"1 of {self.processes} processes stands apart"
        if self.larger == self.processes - 1:
            return f"{alone} (the others have {times} its value)"
        if self.larger == 1:
            return f"{alone} (it has {times} the value of the others)"
        return f"{self.larger} of {self.processes} processes have {times} the value of the others"


def find_kinds(values: Sequence[float], error: float = 0.0) -> ProcessKinds | None:
    """Return the two kinds that processes are of; None where they are of one, as far as they show.

    ``error`` is the relative standard error of a process's value. The kinds are parted at the
    largest gap between neighbours, which is at least 10 % wide, and 4 times what is inside of
    either kind and of the error. For a single outlier that is Dixon's ratio of gap to range at 0.8
    (1951, Annals of Mathematical Statistics 22:68), and it holds for a group of them as well.
    """
    if len(values) < 3 or min(values) <= 0:
        return None
    ordered = sorted(map(math.log, values))
    gaps = [after - before for before, after in itertools.pairwise(ordered)]
    least = max(_LEAST_GAP, _APART * error)
    widest = max(gaps)
    if widest < least:
        return None
    split = gaps.index(widest) + 1
    lower = ordered[:split]
    upper = ordered[split:]
    if widest >= _APART * max(_width(lower), _width(upper)):
        difference = fmean(upper) - fmean(lower)
        return ProcessKinds(len(upper), len(values), math.exp(difference))
    if min(gaps) >= least:
        return ProcessKinds(0, len(values), math.exp(_width(ordered)))
    return None


def _width(ordered: Sequence[float]) -> float:
    return ordered[-1] - ordered[0]
