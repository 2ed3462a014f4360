"""Agreement of a stack's outputs with the reference's: pure functions of arrays, a row an input.

Differences follow numpy.allclose: ``a`` is close to the reference ``b`` where |a - b| <= atol +
rtol |b|. numpy.isclose itself says only whether that holds, not by how much. Best classes are
compared, and probabilities by divergences in nats: their logarithm is the natural one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.records import Estimate
from pytest_mlms.measure.evaluate.closeness import Tolerance, differences
from pytest_mlms.measure.evaluate.scoring import estimate_share

BothSides = tuple[Array, Array]
"""Values of our side and of the reference's, N x classes each."""

Divergences = dict[str, Array]

_SUM_TOLERANCE = 1e-3  # how far from 1 a row of probabilities in float16 may add up
_MOST_OF_SUMS = 0.5
_LEAST_PROBABILITY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best class of each input for both sides, and the divergences by name.

    Divergences are of probabilities; for other scores there are none.
    """

    ours: Array
    reference: Array
    divergences: Mapping[str, Array]


def rank(rows: Iterable[tuple[BothSides, BothSides]], step: float = 0.0) -> Ranking:
    """Compare both sides, which may come in parts: the models' own values, and their scores.

    The best class is the model's own values', as probabilities may be rounded to the same number.
    ``step`` is what an integer of quantised scores stands for, 0 for others.
    """
    ours = []
    theirs = []
    parts = []
    for values, scores in rows:
        ours.append(values[0].argmax(axis=1))
        theirs.append(values[1].argmax(axis=1))
        own, expected = scores
        if are_probabilities(own, step) and are_probabilities(expected, step):
            parts.append(divergences(own, expected, max(step / 2, _LEAST_PROBABILITY)))
    has_all = len(parts) == len(ours)
    return Ranking(
        ours=np.concatenate(ours),
        reference=np.concatenate(theirs),
        divergences=_concatenated(parts) if has_all else {},
    )


def _concatenated(parts: list[Divergences]) -> Divergences:
    found = {}
    for name in parts[0]:
        columns = [part[name] for part in parts]
        found[name] = np.concatenate(columns)
    return found


def are_probabilities(scores: Array, step: float = 0.0) -> bool:
    """Return whether every row is numbers from 0 that add up to 1, as far as they are rounded.

    Numbers in steps of ``step`` are each rounded by half of one: all but those that became 0 up or
    down. Of many classes most become 0, but never all do.
    """
    if not np.isfinite(scores).all():
        return False
    if (scores < 0).any():
        return False
    sums = scores.sum(axis=-1, dtype=np.float64)
    most_above, most_below = (
        np.minimum(_SUM_TOLERANCE + step / 2 * count, _MOST_OF_SUMS)
        for count in (np.count_nonzero(scores, axis=-1), scores.shape[-1])
    )
    return bool(((sums - 1 <= most_above) & (1 - sums <= most_below)).all())


def divergences(ours: Array, reference: Array, least: float = _LEAST_PROBABILITY) -> Divergences:
    """Return how far the probabilities Q (``ours``) of each row are from P (``reference``).

    Both are N x classes. The keys are:

    kl: Kullback and Leibler 1951 (Annals of Mathematical Statistics 22:79), of Q from P, the sum of
    P log(P / Q), in nats. Where P is 0 a term is 0. Where Q is 0 and P is not, it would be
    infinite; a 0 only says "less than ``least``", so that is what Q is taken for: 1.2e-38 of
    float32, and half of a step of quantised probabilities.

    js: Jensen-Shannon (Lin 1991, IEEE Transactions on Information Theory 37:145), the mean
    divergence of both from their mean, 0 to log 2 nats, and finite.

    hellinger: the distance (Hellinger 1909), the root of half the sum of (root P - root Q)^2, from
    0 to 1.
    """
    q = _normalized(ours)
    p = _normalized(reference)
    mean = (p + q) / 2
    positive_q = np.where(q > 0, q, least)
    kl = scipy.special.rel_entr(p, positive_q).sum(axis=-1)
    from_mean = scipy.special.rel_entr(p, mean) + scipy.special.rel_entr(q, mean)
    js = from_mean.sum(axis=-1) / 2
    differences = np.sqrt(p) - np.sqrt(q)
    squares = differences**2
    hellinger = np.sqrt(squares.sum(axis=-1) / 2)
    return {  # rounding can take each a little over its bounds
        "kl": np.maximum(kl, 0.0),
        "js": np.clip(js, 0.0, np.log(2)),
        "hellinger": np.minimum(hellinger, 1.0),
    }


def _normalized(probabilities: Array) -> Array:
    values = probabilities.astype(np.float64)
    sums = values.sum(axis=-1, keepdims=True)
    return np.asarray(values / sums)


_CHUNK_BYTES = 1 << 22
"""Bytes of rows that are compared at a time.

In float64, and with all temporaries, they take ten times as much.
"""
_NO_PROBABILITIES = (
    "the scores are no probabilities; write the step softmax if they are logits, behind "
    "'dequantize: {scale: …, zero_point: …}' if they are quantised"
)


class Value(NamedTuple):
    """One element of an output: its place within the input's row, and the value on both sides."""

    output: str
    place: tuple[int, ...]
    ours: float | str
    reference: float | str


@dataclass(frozen=True, eq=False)
class Differences:
    """The largest differences of each input, and the means over all elements.

    ``deviation`` is a multiple of the tolerance. Relative differences are |a - b| / |b|, of the
    elements whose reference is not 0.
    """

    deviation: Array
    absolute: Array
    relative: Array
    absolute_mean: float
    relative_mean: float


class _Summary:
    """The largest element of each row, and the mean of all elements, over chunks of rows.

    NaN is left out.
    """

    def __init__(self, rows: int) -> None:
        self.largest = np.zeros(rows)
        self._sum = 0.0
        self._count = 0

    def add(self, rows: slice, values: Array) -> None:
        """Add the values of some rows."""
        flat = values.reshape(len(values), -1)
        maxima = np.fmax.reduce(flat, axis=1, initial=0.0)
        self.largest[rows] = np.maximum(self.largest[rows], maxima)
        known = ~np.isnan(flat)
        with np.errstate(over="ignore"):
            self._sum += flat.sum(where=known)
        self._count += int(known.sum())

    @property
    def mean(self) -> float:
        return float(self._sum / max(self._count, 1))


def compare(
    outputs: Mapping[str, Array], reference: Mapping[str, Array], tolerance: Tolerance
) -> Differences:
    """Compare arrays of equal names and shapes, a row an input.

    The memory that it takes does not grow with the rows.
    """
    count = len(next(iter(reference.values())))
    absolute = _Summary(count)
    relative = _Summary(count)
    deviation = _Summary(count)
    for name, expected in reference.items():
        ours = outputs[name]
        for rows in chunks(expected):
            found = differences(ours[rows], expected[rows], tolerance)
            absolute.add(rows, found.absolute)
            relative.add(rows, found.relative)
            deviation.add(rows, found.deviation)
    return Differences(
        deviation=deviation.largest,
        absolute=absolute.largest,
        relative=relative.largest,
        absolute_mean=absolute.mean,
        relative_mean=relative.mean,
    )


def chunks(array: Array) -> Iterable[slice]:
    """Return slices of rows that together are all, each as much as is compared at a time."""
    size = max(1, array.nbytes)
    rows = max(1, _CHUNK_BYTES * len(array) // size)
    starts = range(0, len(array), rows)
    return [slice(start, start + rows) for start in starts]


_OF_DIFFERENCES: dict[str, Callable[[Differences], float]] = {
    "deviation": lambda found: found.deviation.max(),
    "difference_max": lambda found: found.absolute.max(),
    "difference_mean": lambda found: found.absolute_mean,
    "relative_difference_max": lambda found: found.relative.max(),
    "relative_difference_mean": lambda found: found.relative_mean,
}
"""Quantity -> its estimator."""

_OF_DIVERGENCES: dict[str, tuple[str, Callable[[Array], float]]] = {
    "kl_max": ("kl", np.max),
    "kl_mean": ("kl", np.mean),
    "js_max": ("js", np.max),
    "js_mean": ("js", np.mean),
    "hellinger_max": ("hellinger", np.max),
    "hellinger_mean": ("hellinger", np.mean),
}
"""Quantity -> the divergence of each input, and its statistic over the inputs."""


def estimate_agreement(found: Differences, ranking: Ranking | None) -> dict[str, Estimate]:
    """Return the quantities of an agreement item, over the inputs.

    Quantities of classes are left out where there are no scores. What is computed over all inputs
    is no sample and has no interval; the share of equal best classes has Wilson's, since it is
    meant for inputs to come.
    """
    count = len(found.deviation)
    estimates = {}
    for name, estimator in _OF_DIFFERENCES.items():
        estimates[name] = _exact(estimator(found), count)
    if ranking is None:
        return estimates
    same = ranking.ours == ranking.reference
    estimates["same_top1"] = estimate_share(int(same.sum()), count)
    for name, (divergence, statistic) in _OF_DIVERGENCES.items():
        if ranking.divergences:
            values = ranking.divergences[divergence]
            estimates[name] = _exact(statistic(values), count)
        else:
            estimates[name] = _exact(np.nan, count, _NO_PROBABILITIES)
    return estimates


def _exact(value: float, count: int, missing: str = "") -> Estimate:
    """Return the estimate of a value that was computed over all inputs."""
    number = float(value)
    return Estimate(
        value=number,
        low=number,
        high=number,
        confidence=1.0,
        replicates=count,
        of="inputs",
        lacking=missing,
    )


def most_different(
    ours: Mapping[str, Array], reference: Mapping[str, Array], tolerance: Tolerance, count: int = 3
) -> list[Value]:
    """Return the elements that deviate most, the worst first.

    The arrays are of one input, without the axis of inputs. Equal elements are left out.
    """
    found: list[tuple[float, Value]] = []
    for name, expected in reference.items():
        deviation = differences(ours[name], expected, tolerance).deviation
        order = np.argsort(-deviation, axis=None, kind="stable")
        for number in order[:count]:
            place = _place(number, expected.shape)
            sides = [_plain(np.asarray(side)[place]) for side in (ours[name], expected)]
            found.append((float(deviation[place]), Value(name, place, *sides)))
    found.sort(key=operator.itemgetter(0), reverse=True)
    return [value for deviates, value in found[:count] if deviates > 0]


def _plain(element: Any) -> float | str:
    return str(element) if isinstance(element, str) else float(element)


def _place(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indices of an element by its number in C order."""
    axes = np.unravel_index(number, shape)
    return tuple(int(axis) for axis in axes)
