"""The plan of a performance item: its runs, and the looks at its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Limit
from pytest_mlms.core.statistics import samples_for_percentile
from pytest_mlms.measure.evaluate.batch_sizes import BatchSizes
from pytest_mlms.measure.evaluate.looks import MULTIPLES, RISK, SHORT, confidences
from pytest_mlms.measure.evaluate.output_sweep import OwnRules

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
