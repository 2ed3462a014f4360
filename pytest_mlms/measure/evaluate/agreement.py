"""Differences of a stack's outputs from the reference's: pure functions of arrays, a row an input.

Differences follow numpy.allclose: ``a`` is close to the reference ``b`` where |a - b| <= atol +
rtol |b|. numpy.isclose itself says only whether that holds, not by how much.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.records import Estimate
from pytest_mlms.measure.evaluate.estimates import estimate_share
from pytest_mlms.measure.evaluate.ranking import Ranking

Array = NDArray[Any]

_CHUNK_BYTES = 1 << 22
"""Bytes of rows that are compared at a time.

In float64, and with all temporaries, they take ten times as much.
"""
_NUMBERS = "fiubcV"
"""Kinds of types that are numbers; V is that of bfloat16."""

_NO_PROBABILITIES = "the scores are no probabilities; write the step softmax if they are logits"


class Tolerance(NamedTuple):
    """The relative and the absolute difference that are taken for rounding."""

    rtol: float
    atol: float


class Rounding(NamedTuple):
    """The absolute difference that is taken for rounding, in an array that fits the values."""

    atol: Array
    rtol: float = 0.0


class Value(NamedTuple):
    """One element of an output: its place within the input's row, and the value on both sides."""

    output: str
    place: tuple[int, ...]
    ours: float
    reference: float


class ElementDifferences(NamedTuple):
    """Differences of each element: |a - b|, |a - b| / |b|, and |a - b| / (atol + rtol |b|).

    The relative one is NaN where b is 0. ``deviation`` is at most 1 exactly where numpy.isclose
    holds.
    """

    absolute: Array
    relative: Array
    deviation: Array


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


def differences(
    ours: Array, reference: Array, tolerance: Tolerance | Rounding
) -> ElementDifferences:
    """Return the differences of each element from the reference.

    Equal infinities do not differ. NaN differs by infinity. Whole numbers and texts have no
    rounding: they deviate by infinity where they are not equal, but for an ``atol`` of 1 or more.
    """
    same = ours == reference
    if reference.dtype.kind not in _NUMBERS or ours.dtype.kind not in _NUMBERS:
        infinite = np.where(same, 0.0, np.inf)
        return ElementDifferences(infinite, infinite, infinite)
    kind = np.complex128 if "c" in (ours.dtype.kind, reference.dtype.kind) else np.float64
    a = ours.astype(kind)
    b = reference.astype(kind)
    size = np.abs(b)
    is_whole = reference.dtype.kind in "iub"
    with np.errstate(all="ignore"):  # infinities, and divisions by 0
        distance = _whole_distance(ours, reference) if is_whole else np.abs(a - b)
        allowed = tolerance.atol + tolerance.rtol * size
        if is_whole:
            allowed = np.floor(tolerance.atol)
        absolute = _infinite_where_unknown(distance, same)
        quotient = _infinite_where_unknown(absolute / size, same)
        deviation = _infinite_where_unknown(absolute / allowed, same)
    relative = np.where(size == 0, np.nan, quotient)
    return ElementDifferences(absolute, relative, deviation)


def _whole_distance(ours: Array, reference: Array) -> Array:
    """Return |a - b| of whole numbers, which float64 can't tell apart from 2^53 on."""
    kind = np.result_type(ours, reference)
    if kind.kind not in "iub":
        return np.abs(ours.astype(np.float64) - reference)
    wide = np.uint64 if kind.kind == "u" else np.int64
    a, b = (each.astype(wide).view(np.uint64) for each in (ours, reference))
    return np.where(ours > reference, a - b, b - a).astype(np.float64)


def _infinite_where_unknown(values: Array, same: Array) -> Array:
    """Return the values, 0 for equal elements, and infinity for NaN."""
    known = np.nan_to_num(values, nan=np.inf, posinf=np.inf)
    return np.where(same, 0.0, known)


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

    The arrays are those of one input, without the axis of inputs. Equal elements are left out.
    """
    found: list[tuple[float, Value]] = []
    for name, expected in reference.items():
        deviation = differences(ours[name], expected, tolerance).deviation
        order = np.argsort(-deviation, axis=None, kind="stable")
        for number in order[:count]:
            place = _place(number, expected.shape)
            own_value = float(ours[name][place])
            value = Value(name, place, own_value, float(expected[place]))
            found.append((float(deviation[place]), value))
    found.sort(key=operator.itemgetter(0), reverse=True)
    return [value for deviates, value in found[:count] if deviates > 0]


def _place(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indices of an element by its number in C order."""
    axes = np.unravel_index(number, shape)
    return tuple(int(axis) for axis in axes)
