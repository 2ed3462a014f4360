"""The share of inputs for which calls under load gave something else than calls at rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.statistics import Interval, binomial_bounds
from pytest_mlms.measure.agent.predictor import ServedCalls

FAIR_CALLS = 32
"""How many calls of a round are compared where a share of inputs must agree."""

Parts = tuple[Sequence[object], NDArray[np.float64]]
"""The samples of a call, and the share of each of these that differs from what it is at rest."""


@dataclass
class ServedShare:
    """Calls of a side under load, over the rounds so far.

    All calls that are held tell how many of them gave something else than most of the same samples.
    Of these, and of the usual ones, a few were compared with what the samples give at rest.
    """

    calls: int = 0
    others: int = 0
    _held: dict[object, list[int]] = field(default_factory=dict)
    _compared: dict[bool, list[Parts]] = field(default_factory=lambda: {True: [], False: []})
    _are_all: bool = True

    def add(
        self, served: ServedCalls, inputs: Sequence[object], wrong: Sequence[NDArray[np.float64]]
    ) -> None:
        """Add those of a round, whose samples are ``inputs``.

        ``wrong`` has for each call that was told what is the second of ``Parts``.
        """
        self.calls += served.calls
        self.others += served.others
        self._are_all &= sum(call.picks for call in served.told) == served.calls
        for of_input, held, differing in zip(inputs, served.held, served.differing, strict=False):
            if held:
                known = self._held.setdefault(of_input, [0, 0])
                known[0] += held
                known[1] += differing
        for call, shares in zip(served.told, wrong, strict=True):
            parts = [inputs[sample] for sample in call.samples], shares
            self._compared[call.usual] += [parts] * call.picks

    @property
    def told(self) -> str:
        """In how many of all calls something differs from what it is at rest."""
        of_others = self.others * self._share_wrong(usual=False)
        of_usual = (self.calls - self.others) * self._share_wrong(usual=True)
        wrong = round(of_others + of_usual)
        about = "" if self._are_all else "about "
        return f"in {about}{max(1, wrong):,} of {self.calls:,} calls"

    def _share_wrong(self, usual: bool) -> float:
        """Return the share of the calls that were compared in which something differs."""
        return _mean(bool(shares.any()) for _, shares in self._compared[usual])

    def bounds(self, below: float, above: float) -> Interval:
        """Return bounds of the share of inputs that differ, each with this risk.

        Of the others, their share of all calls and how many of them are wrong are bounds each.
        """
        if not self.calls:
            return Interval(0.0, 1.0)
        if self._are_all:
            return bounds_of_calls([*self._compared[True], *self._compared[False]], below, above)
        varying = bounds_of_shares([n / held for held, n in self._held.values()], below, above)
        of_calls = binomial_bounds(self.others, self.calls, below, above)
        varying = Interval(min(varying.low, of_calls.low), max(varying.high, of_calls.high))
        usual, others = (bounds_of_calls(self._compared[by], below, above) for by in (True, False))
        steady = 1 - self.others / self.calls
        low = varying.low * others.low + steady * usual.low
        high = varying.high * others.high + steady * usual.high
        return Interval(low, min(high, 1.0))


def bounds_of_calls(calls: Sequence[Parts], below: float, above: float) -> Interval:
    """Return the wider of the bounds by input and by call.

    A fault of some inputs is in all calls with them, and a race spoils all inputs of a call.
    """
    by_input: dict[object, list[float]] = {}
    for inputs, shares in calls:
        for of_input, share in zip(inputs, shares.tolist(), strict=True):
            by_input.setdefault(of_input, []).append(share)
    of_inputs = bounds_of_shares([_mean(each) for each in by_input.values()], below, above)
    of_calls = bounds_of_shares([_mean(shares.tolist()) for _, shares in calls], below, above)
    return Interval(min(of_inputs.low, of_calls.low), max(of_inputs.high, of_calls.high))


def bounds_of_shares(shares: Sequence[float], below: float, above: float) -> Interval:
    """Return bounds of the mean of shares, which is outside with these risks at most.

    Where all of some are hit these are the bounds of a binomial share. Where each is hit now and
    then, they are those of as many trials as give shares so even: Kish's effective number.
    """
    total = math.fsum(shares)
    if not total:
        return binomial_bounds(0, len(shares), below, above) if shares else Interval(0.0, 1.0)
    count = len(shares) * total / math.fsum(share**2 for share in shares)
    return binomial_bounds(total / len(shares) * count, count, below, above)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return math.fsum(known) / len(known) if known else 0.0
