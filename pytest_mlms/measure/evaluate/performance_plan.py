"""The plan of a performance item: its runs, the looks at its limits, and the risk of each look.

A look judges the limits on the processes that have been measured so far. docs/methodology.md has
the study of the numbers here. All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Decision, Estimate, Limit, Verdict
from pytest_mlms.core.statistics import samples_for_percentile
from pytest_mlms.measure.agent.process import Array

if TYPE_CHECKING:
    from pytest_mlms.measure.evaluate.output_sweep import OwnRules
    from pytest_mlms.measure.evaluate.rows import BatchSizes

RISK = 0.05
"""Risk of an item: an interval that misses the truth at any of its looks."""

MULTIPLES = (1, 2, 4)
"""The limits are judged after so many times N processes in full."""

EARLY_PROCESSES = 3
"""Short processes before the early look. Of two, Student's interval says next to nothing."""

SHORT = 0.25
"""Share of the duration that a short process times."""

ENOUGH = 6
"""Processes that show two equally frequent states of processes: all but one of 32 times."""

ROOM = 1.3
"""Factor by which a limit must be outside of the interval of fewer processes than ``ENOUGH``.

It is for what three processes can't show. Where processes are in one of two states, 20 % above or
below their mean, three are of the same state in a quarter of all items, and the mean is then 1.25
times what they show.
"""

_EARLY_SHARE = EARLY_PROCESSES * SHORT / 12  # of the time of 4 N processes, where N is 3
_DECIDED = (Verdict.PASSED, Verdict.FAILED)


class Look(NamedTuple):
    """A look at the limits after ``processes``, by intervals of this confidence."""

    processes: int
    confidence: float


def confidences(early: bool) -> list[float]:
    """Return the confidence of the intervals at each look; with ``early``, of one more before them.

    The risk is spent as Lan and DeMets have it (1983, Biometrika 70:659), by their function that is
    close to Pocock's boundaries (1977, Biometrika 64:191): a look has what is spent between it and
    the one before. These parts are added up (Bonferroni), as Student's quantiles of a few processes
    don't follow the joint distribution that would save a part of the risk.
    """
    shares = [multiple / MULTIPLES[-1] for multiple in MULTIPLES]
    if early:
        shares = [_EARLY_SHARE, *shares]
    spent = [RISK * math.log(1 + (math.e - 1) * share) for share in [0.0, *shares]]
    return [1 - float(risk) for risk in np.diff(spent)]


def needed_room(latencies: Array) -> float:
    """Return the factor by which a limit must be away from the values of a short run.

    It is 1 where the medians of the run's halves are the same. Else it is as if the change from
    one to the other went on for as long as a run in full takes.
    """
    half = len(latencies) // 2
    if half == 0:
        return math.inf
    medians = [float(np.median(part)) for part in (latencies[:half], latencies[half:])]
    change = max(medians) / min(medians)
    return float(change ** (1 / SHORT))


def are_clear(decisions: Iterable[Decision], room: float) -> bool:
    """Return whether each limit is decided, and outside of its interval by the factor ``room``."""
    return all(_is_clear(decision, room) for decision in decisions)


def _is_clear(decision: Decision, room: float) -> bool:
    estimate = decision.estimate
    if decision.verdict not in _DECIDED:
        return False
    return has_room(decision.limit, estimate.low, estimate.high, room)


def are_promising(limits: Iterable[Limit], estimates: Mapping[str, Estimate], room: float) -> bool:
    """Return whether each limit is away from the value of a process by the factor ``room``."""
    return all(_is_promising(limit, estimates.get(limit.quantity), room) for limit in limits)


def _is_promising(limit: Limit, estimate: Estimate | None, room: float) -> bool:
    if estimate is None or estimate.lacking:
        return False
    return has_room(limit, estimate.value, estimate.value, room)


def has_room(limit: Limit, low: float, high: float, room: float) -> bool:
    """Return whether both ends are on one side of a limit, and away from it by a factor."""
    return high * room <= limit.value or low > limit.value * room


_LEAST_CALLS = 16  # timed calls of a process


@dataclass(frozen=True)
class PerformancePlan:
    """The runs of a performance item.

    ``duration`` and ``budget`` are in seconds, ``processes`` is their number at the first look in
    full. Before it there is an early look after ``early`` short processes; none where it is 0, or
    where there are no limits. ``names`` are what messages call the inputs of each batch.
    Where it is ``by_group``, limits on latency hold for each shape of the inputs. ``batch_sizes``
    compares outputs by the size of the batch, None where no limit asks for it, and ``rules`` are
    those by which outputs of processes are the same.
    """

    scenario: str
    batch_size: int
    processes: int
    duration: float
    budget: float
    limits: Sequence[Limit]
    early: int = 0
    names: Sequence[Sequence[str]] = ()
    by_group: bool = False
    batch_sizes: BatchSizes | None = None
    rules: OwnRules = dict

    @property
    def may_end_early(self) -> bool:
        """True if there is an early look."""
        return bool(self.early and self.limits)

    @property
    def confidences(self) -> list[float]:
        """Confidence of each look in full: 95 % for the item, less what an early look may spend.

        Without limits nothing is decided, and a second look replaces the first one.
        """
        if not self.limits:
            return [1 - RISK] * 2
        return confidences(self.may_end_early)[-len(MULTIPLES) :]

    @property
    def early_confidence(self) -> float:
        """Confidence of the early look."""
        return confidences(early=True)[0]

    @property
    def short(self) -> float:
        """Seconds that a short process times."""
        return SHORT * self.duration

    @property
    def least(self) -> int:
        """Timed calls of a process: what the limits on percentiles need."""
        least = _LEAST_CALLS
        for limit in self.limits:
            needed = calls_needed(QUANTITIES[limit.quantity].percent)
            least = max(least, needed)
        return least

    def least_short(self, seconds: float) -> int:
        """Return the timed calls of a short process whose calls take ``seconds``.

        They are as many as the percentiles need that a process in full could tell, so that nothing
        is missing from an item that ends early.
        """
        least = self.least
        for quantity in QUANTITIES.values():
            needed = calls_needed(quantity.percent)
            if needed * seconds <= self.duration:
                least = max(least, needed)
        return least

    @property
    def watches_growth(self) -> bool:
        """True if each process is watched for how its memory grows, whatever its timed run says."""
        return any(limit.quantity == "memory_growth" for limit in self.limits)

    @property
    def longest(self) -> float:
        """Seconds that one process may time: half of its share of the budget.

        Warming up may take a quarter.
        """
        return self.budget / self.processes / 2


def calls_needed(percent: float | None) -> int:
    """Return the calls of a process that a percentile needs, or a quantity that is none."""
    if percent is None or percent <= 50:
        return 1
    return samples_for_percentile(percent)
