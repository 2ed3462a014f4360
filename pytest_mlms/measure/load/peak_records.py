"""Records of the search for a peak: its plan, its runs of load, and its answer.

The search knows no agent: a process is a function that puts a number of queries at a rate on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from pytest_mlms.measure.load.evidence import Criterion, Flags, Outcome

PROCESSES = 3
"""Fresh processes that show each end of the answer."""

_DIGITS = 4  # of a rate


@dataclass(frozen=True)
class PeakPlan:
    """The aim of a search, and the load that it may take.

    Attributes:
        criterion: The limit, the share of queries that must meet it, and how far both ends of the
            answer may be from its middle.
        start: The first rate: the throughput of the offline scenario, or the inverse of a call.
        fastest: Seconds of the fastest call without other load.
        budget: Seconds of load.
    """

    criterion: Criterion
    start: float
    fastest: float
    budget: float


@dataclass(frozen=True, eq=False)
class Load:
    """A run of load as it was measured.

    ``over`` has a flag for each query in the scheduled order. ``seconds`` is what the run took.
    ``untrusted`` says why it can't be trusted, such as a load generator that was late.
    """

    over: Flags
    seconds: float
    untrusted: str = ""


Drive = Callable[[float, int], Load]
"""Puts queries on a process: the rate in queries a second, and their number."""

OpenProcess = Callable[[], AbstractContextManager[Drive]]
"""Starts a fresh process."""


@dataclass(frozen=True)
class Probe:
    """The record of a run of load: its process, counted from 0, and how many were over the limit.

    ``outcome`` is what all runs at that rate said after it.
    """

    rate: float
    process: int
    queries: int
    over: int
    seconds: float
    outcome: Outcome
    untrusted: str = ""


@dataclass(frozen=True)
class RateSummary:
    """The load at one rate, over all runs and processes."""

    rate: float
    queries: int
    over: int
    processes: int
    outcome: Outcome


@dataclass(frozen=True)
class Peak:
    """The answer: the highest rate shown good, and the lowest rate above it shown bad.

    Attributes:
        good: The highest good rate, 0 where none was shown to be good.
        bad: The lowest bad rate above it, infinity where none was shown to be bad.
        confirmed: Whether as many fresh processes as planned showed both ends.
        rates: All rates that were tried, in ascending order.
        exceptions: Bad rates below ``good``: the outcomes are not monotone.
        seconds: Seconds of load.
        reason: Why there is no answer, or why it is wider than asked for; "" otherwise.
    """

    good: float
    bad: float
    confirmed: bool
    rates: tuple[RateSummary, ...]
    exceptions: tuple[float, ...]
    seconds: float
    reason: str = ""

    @property
    def rate(self) -> float:
        """The middle of the answer on a log scale; 0 or infinity where an end is missing."""
        return math.sqrt(self.good * self.bad) if self.good else 0.0

    @property
    def precision(self) -> float:
        """The distance of the ends from the middle, as a share of it."""
        return math.sqrt(self.bad / self.good) - 1 if self.good else math.inf


def rounded_rate(rate: float) -> float:
    """Return a rate with as many digits as people are shown, so that it can be tried again."""
    return float(f"{rate:.{_DIGITS}g}")
