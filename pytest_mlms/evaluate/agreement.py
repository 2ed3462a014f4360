"""How far a stack's outputs are from the reference's: pure functions of arrays, one row an input.

Differences follow numpy.allclose: ``a`` is close to the reference ``b`` where |a - b| <= atol +
rtol |b|. Divergences are of probabilities and in nats: their logarithm is the natural one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from pytest_mlms.records import Estimate
from pytest_mlms.statistics import wilson_interval

__all__ = [
    "Departure",
    "Differences",
    "Ranking",
    "Tolerance",
    "Value",
    "are_probabilities",
    "chunks",
    "compare",
    "differences",
    "divergences",
    "estimate_agreement",
    "find_departure",
    "most_different",
    "rank",
]

Array = NDArray[Any]
Layers = Sequence[tuple[str, Array]]

_CHUNK = (
    1 << 22
    # bytes of rows that are compared at a time; in float64 and with what is made of them, ten times
    # that
)
_SUM = 1e-3  # how far from 1 a row of probabilities in float16 may add up


class Tolerance(NamedTuple):
    """The relative and the absolute difference that are taken for rounding."""

    rtol: float
    atol: float


class Value(NamedTuple):
    """One element of an output: its place within the input's row, and what both have there."""

    output: str
    place: tuple[int, ...]
    ours: float
    reference: float


class Departure(NamedTuple):
    """The first layer that departs, by both names, its largest difference, and the reference's
    largest value there.

    ``after`` are the names of the last layers before it that agree; None where none does.
    """

    layer: str
    ours: str
    difference: float
    size: float
    after: tuple[str, str] | None


@dataclass(frozen=True, eq=False)
class Differences:
    """The largest of each input: in ``deviation`` as a multiple of the tolerance; means are over
    all elements.

    Relative ones are |a - b| / |b|, of the elements whose reference is not 0.
    """

    deviation: Array
    absolute: Array
    relative: Array
    absolute_mean: float
    relative_mean: float


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best class of each input for both, and the divergences of their probabilities by name.

    None of scores.
    """

    ours: Array
    reference: Array
    divergences: Mapping[str, Array]


def differences(ours: Array, reference: Array, tolerance: Tolerance) -> tuple[Array, Array, Array]:
    """Return of each element |a - b|, |a - b| / |b| (NaN where b is 0), and |a - b| / (atol + rtol
    |b|).

    The last is at most 1 exactly where numpy.isclose holds. Equal infinities do not differ; what is
    no number differs by infinity.
    """
    a, b = ours.astype(np.float64), reference.astype(np.float64)
    with np.errstate(all="ignore"):
        same, size = a == b, np.abs(b)
        absolute = np.where(same, 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
        relative = np.where(
            b == 0, np.nan, np.where(same, 0.0, np.nan_to_num(absolute / size, nan=np.inf))
        )
        allowed = tolerance.atol + tolerance.rtol * size
        deviation = np.where(
            same, 0.0, np.nan_to_num(absolute / allowed, nan=np.inf, posinf=np.inf)
        )
    return absolute, relative, deviation


def compare(
    outputs: Mapping[str, Array], reference: Mapping[str, Array], tolerance: Tolerance
) -> Differences:
    """Compare arrays of equal names and shapes, a row an input, in memory that does not grow with
    the rows.
    """
    count = len(next(iter(reference.values())))
    deviation, absolute, relative = (np.zeros(count) for _ in range(3))
    sums, counts = np.zeros(2), np.zeros(2)
    for name, expected in reference.items():
        for rows in chunks(expected):
            found = differences(outputs[name][rows], expected[rows], tolerance)
            flat = [each.reshape(len(each), -1) for each in found]
            known = ~np.isnan(flat[1])
            flat[1] = np.where(known, flat[1], 0.0)
            for largest, values in zip((absolute, relative, deviation), flat, strict=True):
                largest[rows] = np.maximum(largest[rows], values.max(axis=1, initial=0.0))
            with np.errstate(over="ignore"):
                sums += flat[0].sum(), flat[1].sum()
            counts += flat[0].size, known.sum()
    means = sums / np.maximum(counts, 1)
    return Differences(deviation, absolute, relative, float(means[0]), float(means[1]))


def chunks(array: Array) -> Iterable[slice]:
    """Return slices of rows that together are all, each as much as is worth comparing at a time."""
    size = max(1, _CHUNK * len(array) // max(1, array.nbytes))
    return (slice(first, first + size) for first in range(0, len(array), size))


def are_probabilities(scores: Array) -> bool:
    """Return whether every row is of numbers from 0 to 1 that add up to 1, as far as they are
    rounded.
    """
    within = bool(np.isfinite(scores).all() and (scores >= 0).all())
    return within and bool((np.abs(scores.sum(axis=-1, dtype=np.float64) - 1) <= _SUM).all())


def divergences(ours: Array, reference: Array) -> dict[str, Array]:
    """Return of each row how far the probabilities Q (``ours``) are from P (``reference``), N x
    classes each.

    kl: Kullback and Leibler 1951 (Annals of Mathematical Statistics 22:79), of Q from P, the sum of
    P log(P / Q), in nats. Where P is 0 a term is 0. Where Q is 0 and P is not, it would be
    infinite; a 0 of float32 only says "less than 1.2e-38", so that is what Q is taken for. js:
    Jensen-Shannon (Lin 1991, IEEE Transactions on Information Theory 37:145), the mean divergence
    of both from their mean, 0 to log 2 nats, and finite. hellinger: the distance (Hellinger 1909),
    the root of half the sum of (root P - root Q)^2, from 0 to 1.
    """
    q, p = (
        each / each.sum(axis=-1, keepdims=True)
        for each in (ours.astype(np.float64), reference.astype(np.float64))
    )
    mean = (p + q) / 2
    kl = rel_entr(p, np.where(q > 0, q, np.finfo(np.float32).tiny)).sum(axis=-1)
    js = (rel_entr(p, mean) + rel_entr(q, mean)).sum(axis=-1) / 2
    hellinger = np.sqrt(((np.sqrt(p) - np.sqrt(q)) ** 2).sum(axis=-1) / 2)
    return {
        "kl": np.maximum(kl, 0.0),
        "js": np.clip(js, 0.0, np.log(2)),
        "hellinger": np.minimum(hellinger, 1.0),
    }


def rank(scores: Iterable[tuple[Array, Array]]) -> Ranking:
    """Compare the scores of both sides (N x classes), which may come in parts."""
    ours, theirs, parts = list[Array](), list[Array](), list[dict[str, Array]]()
    for own, expected in scores:
        ours.append(own.argmax(axis=1))
        theirs.append(expected.argmax(axis=1))
        if are_probabilities(own) and are_probabilities(expected):
            parts.append(divergences(own, expected))
    whole = len(parts) == len(ours)
    found = (
        {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if whole else {}
    )
    return Ranking(np.concatenate(ours), np.concatenate(theirs), found)


def estimate_agreement(found: Differences, ranking: Ranking | None) -> dict[str, Estimate]:
    """Return the quantities of an agreement item, over the inputs; without ranks where there are no
    scores.

    What is computed over all inputs is no sample and has no interval; the share of equal best
    classes has Wilson's, since it is meant for inputs to come.
    """
    count = len(found.deviation)

    def exact(value: float, lacking: str = "") -> Estimate:
        return Estimate(float(value), float(value), float(value), 1.0, count, "inputs", lacking)

    estimates = {
        "deviation": exact(found.deviation.max()),
        "difference_max": exact(found.absolute.max()),
        "difference_mean": exact(found.absolute_mean),
        "relative_difference_max": exact(found.relative.max()),
        "relative_difference_mean": exact(found.relative_mean),
    }
    if ranking is None:
        return estimates
    same = int((ranking.ours == ranking.reference).sum())
    estimates["same_top1"] = Estimate(
        same / count, *wilson_interval(same, count), 0.95, count, "inputs"
    )
    lacking = "" if ranking.divergences else _NO_PROBABILITIES
    for name in ("kl", "js", "hellinger"):
        values = ranking.divergences.get(name, _UNKNOWN)
        estimates[f"{name}_max"] = exact(values.max(), lacking)
        estimates[f"{name}_mean"] = exact(values.mean(), lacking)
    return estimates


_UNKNOWN = np.array([np.nan])
_EXACT = Tolerance(0.0, 0.0)
_NO_PROBABILITIES = "the scores are no probabilities; write the step softmax if they are logits"


def most_different(
    ours: Mapping[str, Array], reference: Mapping[str, Array], tolerance: Tolerance, count: int = 3
) -> list[Value]:
    """Return the elements of one input (arrays without the axis of inputs) that deviate most, the
    worst first.
    """
    found = []
    for name, expected in reference.items():
        deviation = differences(ours[name], expected, tolerance)[2]
        for flat in np.argsort(-deviation, axis=None, kind="stable")[:count]:
            index = tuple(int(axis) for axis in np.unravel_index(flat, expected.shape))
            value = Value(name, index, float(ours[name][index]), float(expected[index]))
            found.append((float(deviation[index]), value))
    return [
        value
        for deviation, value in sorted(found, key=lambda pair: -pair[0])[:count]
        if deviation > 0
    ]


def find_departure(ours: Layers, reference: Layers, tolerance: Tolerance) -> Departure | None:
    """Return the first layer after the last one that agrees; None where no layer that both have
    departs.

    A layer of the reference is that of the same name, or else any of the same shape (as it is, or
    with the channels moved) behind the last one that agreed; frameworks fuse and rename layers, so
    it may have none, and is passed over. A layer agrees where its largest difference is within atol
    + rtol times its largest value: the rounding of a sum goes by its terms, not by what is left of
    them.
    """
    names = {name for name, _ in ours}
    agreed: tuple[str, str] | None = None
    departed: Departure | None = None
    behind = 0
    for name, expected in reference:
        own = [
            (i, *ours[i])
            for i in range(len(ours))
            if (ours[i][0] == name if name in names else i >= behind)
        ]
        fitting = [
            (i, other, off)
            for i, other, values in own
            if (off := _off(values, expected)) is not None
        ]
        if not fitting:
            continue
        size = float(np.abs(expected).max(initial=0.0))
        index, other, off = min(fitting, key=lambda each: each[2])
        if off <= tolerance.atol + tolerance.rtol * size:
            agreed, departed, behind = (name, other), None, max(behind, index + 1)
        elif departed is None:
            departed = Departure(name, other, off, size, agreed)
    return departed


def _off(values: Array, expected: Array) -> float | None:
    """Return the largest difference between arrays of one shape, or of one that differs in where
    the channels are.
    """
    turned = [values]
    if values.ndim == expected.ndim > 2:
        turned += [np.moveaxis(values, -1, 1), np.moveaxis(values, 1, -1)]
    fitting = [each for each in turned if each.shape == expected.shape]
    return min(
        (float(differences(each, expected, _EXACT)[0].max(initial=0.0)) for each in fitting),
        default=None,
    )
