"""Quantities of scores beyond the best class: ROC AUC, average precision and calibration.

The area under the ROC curve is the share of the pairs of an input with the label and one without it
whose scores are in order, half of those with equal scores (Hanley and McNeil 1982, Radiology
143:29). The average precision is the mean, over the inputs with the label, of the precision at
their score, as scikit-learn has it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_BINS = 15
_EDGE = 1e-3  # of the width of a bin: shares of few trees are at edges, but for rounding


class Areas(NamedTuple):
    """The area under the ROC curve, and the average precision: numbers, or an array of each.

    Both are NaN without inputs that have the label, the first also without others.
    """

    roc: Any
    precision: Any


class Curve(NamedTuple):
    """The N scores of a class in falling order, and the L levels of equal ones.

    ``order`` (N) sorts the inputs, ``labelled`` (N) is whether each of them has the label then, and
    ``level`` (N) the number of its level. ``starts`` (L) is the place of each level's first input.
    """

    order: Array
    labelled: NDArray[np.bool_]
    level: Array
    starts: Array

    @staticmethod
    def of(scores: Array, has_label: NDArray[np.bool_]) -> Curve:
        """Return the curve of scores (N), by whether each input has the label (N)."""
        order = np.argsort(-scores, kind="stable")
        _, starts, level = np.unique(-scores[order], return_index=True, return_inverse=True)
        return Curve(order, has_label[order], level, starts)

    def areas(self, counts: Array) -> Areas:
        """Return the areas of R samples, or of one.

        ``counts`` (R x N, or N) says how often each input is in each sample.
        """
        levels = self._levels(counts)
        total = levels.labelled.sum(axis=-1)
        others = levels.others.sum(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            in_order = (levels.labelled * levels.others_beaten).sum(axis=-1)
            average = (levels.labelled * levels.precision).sum(axis=-1) / total
            return Areas(in_order / (total * others), average)

    def slopes(self) -> Areas:
        """Return how much the areas of all inputs change with the count of each (N).

        They are derivatives, as of the influence function: with those of the ROC curve the variance
        is that of DeLong et al. (1988, Biometrics 44:837).
        """
        once = np.ones(len(self.order))
        roc, average = self.areas(once)
        levels = self._levels(once)
        total = levels.labelled.sum()
        others = levels.others.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            of_labelled = (levels.others_beaten / others - roc) / total
            of_others = (levels.labelled_above / total - roc) / others
            of_roc = np.where(self.labelled, of_labelled[self.level], of_others[self.level])

            # One more input makes the precision of its own level and of all that follow another.
            hits = levels.labelled / levels.until
            gain = levels.precision - average + _sums_from(hits)
            loss = _sums_from(hits * levels.precision)
            change = np.where(self.labelled, gain[self.level], 0.0) - loss[self.level]
            of_precision = change / total
        return Areas(self._as_given(of_roc), self._as_given(of_precision))

    def _as_given(self, values: Array) -> Array:
        """Return values of the inputs by score in the order in which the inputs were given."""
        given = np.empty(len(values))
        given[self.order] = values
        return given

    def _levels(self, counts: Array) -> _Levels:
        drawn = counts[..., self.order]
        labelled = np.add.reduceat(drawn * self.labelled, self.starts, axis=-1)
        all_inputs = np.add.reduceat(drawn, self.starts, axis=-1)
        return _Levels(labelled, all_inputs - labelled)


class _Levels(NamedTuple):
    """How many inputs of each level have the label, and how many don't: the last axis is L."""

    labelled: Array
    others: Array

    @property
    def others_beaten(self) -> Array:
        """How many others have a lower score, and half of those with the same."""
        return np.asarray(_sums_from(self.others) - self.others / 2)

    @property
    def labelled_above(self) -> Array:
        """How many with the label have a higher score, and half of those with the same."""
        return np.asarray(self.labelled.cumsum(axis=-1) - self.labelled / 2)

    @property
    def until(self) -> Array:
        """How many inputs have this score or a higher one."""
        return np.asarray((self.labelled + self.others).cumsum(axis=-1))

    @property
    def precision(self) -> Array:
        """The share of these that have the label; 0 where there are none."""
        found = self.labelled.cumsum(axis=-1)
        share = np.divide(found, self.until, out=np.zeros(found.shape), where=self.until > 0)
        return np.asarray(share)


def _sums_from(values: Array) -> Array:
    """Return the sums of values from each place of the last axis on."""
    return np.asarray(values[..., ::-1].cumsum(axis=-1)[..., ::-1])


def calibration_errors(counts: Array, confidences: Array, right: NDArray[np.bool_]) -> Array:
    """Return the expected calibration error of R samples, over 15 bins of equal width.

    It is the mean, over the inputs, of the difference of the share that is right and the mean
    confidence within a bin (Guo et al. 2017, ICML, PMLR 70:1321, equation 3). ``confidences`` (N)
    are the probabilities of the best classes; bin m has those above (m - 1) / 15 up to m / 15.
    """
    gaps: Array = right - confidences
    errors = np.zeros(len(counts))
    for inside in _bins(confidences):
        errors += np.abs(counts[:, inside] @ gaps[inside])
    return np.asarray(errors / counts.sum(axis=1))


def calibration_bias(confidences: Array, right: NDArray[np.bool_]) -> float:
    """Return the part of the calibration error that chance explains, at most on average.

    The size of a bin's mean gap is that of a normal variable around the true gap, whose mean is
    larger than the true size (Leone et al. 1961, Technometrics 3:543). The true one is taken for
    two standard errors less than the one found, and the error for that of these inputs, or of
    answers as often right as their confidence where it is more.
    """
    gaps: Array = right - confidences
    bias = 0.0
    for inside in _bins(confidences):
        own, confident = gaps[inside], confidences[inside]
        seen = ((own - own.mean()) ** 2).sum() if len(own) else 0.0
        error = math.sqrt(max(seen, (confident * (1 - confident)).sum(), 0.0))
        if not error:
            continue
        least = max(abs(own.sum()) / error - 2, 0)
        folded = math.sqrt(2 / math.pi) * math.exp(-(least**2) / 2)
        folded += least * math.erf(least / math.sqrt(2))
        bias += error * (folded - least)
    return float(bias / len(gaps))


def _bins(confidences: Array) -> list[Array]:
    """Return the numbers of the inputs in each bin. Those at an edge may be rounded above it."""
    bins = np.clip(np.ceil(confidences * _BINS - _EDGE).astype(int) - 1, 0, _BINS - 1)
    return [np.flatnonzero(bins == number) for number in range(_BINS)]
