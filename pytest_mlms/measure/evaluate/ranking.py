"""Best classes of two sides, and the divergences of their probabilities: pure functions of arrays.

Divergences are in nats: their logarithm is the natural one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Array = NDArray[Any]
BothSides = tuple[Array, Array]
"""Values of our side and of the reference's, N x classes each."""

Divergences = dict[str, Array]

_SUM_TOLERANCE = 1e-3  # how far from 1 a row of probabilities in float16 may add up
_LEAST_PROBABILITY = np.finfo(np.float32).tiny


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best class of each input for both sides, and the divergences by name.

    Divergences are of probabilities; for other scores there are none.
    """

    ours: Array
    reference: Array
    divergences: Mapping[str, Array]


def rank(rows: Iterable[tuple[BothSides, BothSides]]) -> Ranking:
    """Compare both sides, which may come in parts: the models' own values, and their scores.

    The best class is that of the own values, as probabilities may be rounded to the same number.
    """
    ours = []
    theirs = []
    parts = []
    for values, scores in rows:
        ours.append(values[0].argmax(axis=1))
        theirs.append(values[1].argmax(axis=1))
        own, expected = scores
        if are_probabilities(own) and are_probabilities(expected):
            parts.append(divergences(own, expected))
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


def are_probabilities(scores: Array) -> bool:
    """Return whether every row is numbers from 0 that add up to 1, as far as they are rounded."""
    if not np.isfinite(scores).all():
        return False
    if (scores < 0).any():
        return False
    sums = scores.sum(axis=-1, dtype=np.float64)
    errors = np.abs(sums - 1)
    return bool(errors.max(initial=0.0) <= _SUM_TOLERANCE)


def divergences(ours: Array, reference: Array) -> Divergences:
    """Return how far the probabilities Q (``ours``) of each row are from P (``reference``).

    Both are N x classes. The keys are:

    kl: Kullback and Leibler 1951 (Annals of Mathematical Statistics 22:79), of Q from P, the sum of
    P log(P / Q), in nats. Where P is 0 a term is 0. Where Q is 0 and P is not, it would be
    infinite; a 0 of float32 only says "less than 1.2e-38", so that is what Q is taken for.

    js: Jensen-Shannon (Lin 1991, IEEE Transactions on Information Theory 37:145), the mean
    divergence of both from their mean, 0 to log 2 nats, and finite.

    hellinger: the distance (Hellinger 1909), the root of half the sum of (root P - root Q)^2, from
    0 to 1.
    """
    q = _normalized(ours)
    p = _normalized(reference)
    mean = (p + q) / 2
    positive_q = np.where(q > 0, q, _LEAST_PROBABILITY)
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
