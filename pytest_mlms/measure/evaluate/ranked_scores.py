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
    """The scores of a class, in falling order.

    ``order`` (N) sorts the inputs, ``labelled`` (N) is whether each of them has the label then, and
    ``first`` and ``end`` (N) are the places of the first input of its score and behind the last.
    """

    order: Array
    labelled: NDArray[np.bool_]
    first: Array
    end: Array

    @staticmethod
    def of(scores: Array, has_label: NDArray[np.bool_]) -> Curve:
        """Return the curve of scores (N), by whether each input has the label (N)."""
        order = np.argsort(-scores, kind="stable")
        rising = -scores[order]
        first = np.searchsorted(rising, rising, side="left")
        end = np.searchsorted(rising, rising, side="right")
        return Curve(order, has_label[order], first, end)

    def areas(self, counts: Array) -> Areas:
        """Return the areas of R samples.

        ``counts`` (R x N) says how often each input is in each sample.
        """
        drawn = counts[:, self.order]
        places = np.flatnonzero(self.labelled)
        weights = drawn[:, places]
        of_all = _sums(drawn)
        of_label = _sums(weights)
        firsts, ends = self.first[places], self.end[places]
        above = of_all[:, firsts]
        right_above = of_label[:, np.searchsorted(places, firsts)]
        until = of_all[:, ends]
        right = of_label[:, np.searchsorted(places, ends)]
        total = of_label[:, -1]
        others = of_all[:, -1] - total
        wrong = (above - right_above + until - right) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            in_order = (weights * (others[:, np.newaxis] - wrong)).sum(axis=1)
            precision = np.where(until > 0, right / until, 0.0)
            average = (weights * precision).sum(axis=1) / total
            return Areas(in_order / (total * others), average)

    def slopes(self) -> Areas:
        """Return how much the areas of all inputs change with the count of each (N).

        They are derivatives, as of the influence function: with those of the ROC curve the variance
        is that of DeLong et al. (1988, Biometrics 44:837).
        """
        found = Areas(np.empty(len(self.order)), np.empty(len(self.order)))
        label = self.labelled.astype(np.float64)
        of_label = _sums(label[np.newaxis])[0]
        right_above, right = of_label[self.first], of_label[self.end]
        total = of_label[-1]
        others = len(label) - total
        wrong = (self.first - right_above + self.end - right) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            in_order = np.where(
                self.labelled, 1 - wrong / others, (right_above + right) / total / 2
            )
            roc = (in_order * label).sum() / total
            found.roc[self.order] = (in_order - roc) / np.where(self.labelled, total, others)
            precision = right / self.end
            average = (precision * label).sum() / total
            gain = label * (precision - average + _sums_from(label / self.end)[self.first])
            loss = _sums_from(label * precision / self.end)[self.first]
            found.precision[self.order] = (gain - loss) / total
        return found


def _sums(values: Array) -> Array:
    """Return the sums of the first 0, 1, … N of values (R x N) in each row."""
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


def _sums_from(values: Array) -> Array:
    """Return the sums of values (N) from each place on."""
    return np.asarray(values[::-1].cumsum()[::-1])


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
