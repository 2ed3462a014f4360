"""Candidates in earlier runs: those that are hopeless by them aren't measured again.

It never makes an answer: software may have changed since, and runs of different days differ. So a
candidate is set aside only where it is twice as bad, by all of its last runs, as it would have to
be; and who reads the answer is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Limit

FACTOR = 2.0
"""The factor by which earlier runs of a candidate must be worse than it would have to be."""


class Known(NamedTuple):
    """A quantity in the last ``runs`` of a case: its mean, and the ends of all their intervals.

    ``last`` is when the last one started.
    """

    mean: float
    low: float
    high: float
    runs: int
    last: str

    def is_worse(self, quantity: str, value: float, factor: float) -> bool:
        """Return whether all runs are worse than a value by more than a factor; nothing is of 0.

        Below it is memory that calls gave back.
        """
        if value <= 0:
            return False
        if QUANTITIES[quantity].better == "lower":
            return self.low > factor * value
        return self.high * factor < value

    def is_within(self, limit: Limit) -> bool:
        """Return whether all runs are within a limit."""
        if QUANTITIES[limit.quantity].better == "lower":
            return self.high <= limit.value
        return self.low >= limit.value


def hopeless(
    known: Sequence[Mapping[str, Known]],
    objective: str,
    limits: Sequence[Sequence[Limit]],
    answering: Sequence[object],
) -> dict[int, str]:
    """Return the candidates, by number, that earlier runs leave no hope for, with the reason.

    ``limits`` are those of each candidate on what was timed, and ``answering`` is what its answers
    depend on, None where no limit is on these. One is hopeless that is far over a limit, or far
    worse than one that was within its limits in all of its last runs. Whether that one's answers
    are good enough isn't known: where they must be, it is one whose answers are the same.
    """
    found = {}
    fitting = {}
    for number, (of_candidate, own) in enumerate(zip(known, limits, strict=True)):
        for limit in own:
            value = of_candidate.get(limit.quantity)
            if value is not None and value.is_worse(limit.quantity, limit.value, FACTOR):
                found[number] = f"far over its limit on {limit.quantity} in {_words(value)}"
        if objective in of_candidate and all(_fits(of_candidate, limit) for limit in own):
            fitting[number] = of_candidate[objective]
    sign = QUANTITIES[objective].sign
    for number, of_candidate in enumerate(known):
        value = of_candidate.get(objective)
        alike = [fitting[n] for n in fitting if answering[n] in (None, answering[number])]
        if value is None or not alike:
            continue
        best = min(alike, key=lambda each: sign * each.mean)
        least = best.high if QUANTITIES[objective].better == "lower" else best.low
        if value.is_worse(objective, least, FACTOR):
            found.setdefault(number, f"far worse than another in {_words(value)}")
    return found


def _fits(known: Mapping[str, Known], limit: Limit) -> bool:
    value = known.get(limit.quantity)
    return value is not None and value.is_within(limit)


def _words(known: Known) -> str:
    runs = "1 run" if known.runs == 1 else f"the last {known.runs} runs"
    return f"{runs} until {known.last[:10]}"
