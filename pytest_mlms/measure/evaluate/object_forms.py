"""Lists of objects of which rounding decides how many there are, compared object by object."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure.evaluate.closeness import Rule

Array = NDArray[Any]
Outputs = Mapping[str, Array]

SPREADS = 2.0
"""How many times the baseline's own spread is taken for rounding."""

_MOST_OBJECTS = 1024  # of which each is compared with each
_MOST_VALUES = 64  # of an object
_FAR = 1e6  # times what is allowed, beyond which nothing is nearer


class _Objects(NamedTuple):
    """A row of values for each object, and how far each of them may be off."""

    values: Array
    allowed: Array

    def fits(self, other: _Objects) -> bool:
        """Return whether both have the same values of an object."""
        return len(self.values.T) == len(other.values.T)

    def joined(self, other: _Objects, rows: Array) -> _Objects:
        """Return these objects, and some of the others."""
        pairs = zip(self, other, strict=True)
        return _Objects(*(np.concatenate([a, b[rows]]) for a, b in pairs))


def deviation_from_forms(
    ours: Outputs, forms: Sequence[Outputs], rules: Mapping[str, Rule]
) -> float:
    """Return how far our objects are from those of the ``forms`` that a model's outputs have.

    The first form is what it gives for the same inputs, others are for rounded ones; ``rules`` are
    those of the outputs that vary in their number of objects, along one axis. Each of our objects
    must be one of any form, and each that all forms have must be one of ours. The result is a
    multiple of what is allowed: 0 where they are, also where the forms differ in their common
    objects as much, and where nothing tells objects apart; else more than 1.
    """
    rules = copy.deepcopy(rules)  # which remember sizes: ours are no measure
    largest = 0.0
    for names, axis in _groups(ours, forms[0], rules):
        first, *others, own = (_objects(each, names, axis, rules) for each in (*forms, ours))
        if own and first:
            known = [each for each in others if each and each.fits(first)]
            largest = max(largest, _deviation(own, first, known))
    return largest


def _groups(
    ours: Outputs, first: Outputs, rules: Mapping[str, Rule]
) -> list[tuple[list[str], int]]:
    """Return outputs that have a row for each of the same objects, and the axis of these."""
    found: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for name in rules:
        a, b = ours[name].shape, first[name].shape
        axes = [axis for axis in range(min(len(a), len(b))) if a[axis] != b[axis]]
        if len(a) == len(b) and len(axes) == 1:
            found.setdefault((a[: axes[0] + 1], b[axes[0]]), []).append(name)
    return [
        (names, len(shape) - 1)
        for (shape, _), names in found.items()
        if any(rules[name].order or first[name].dtype.kind == "f" for name in names)
    ]


def _objects(
    found: Outputs, names: Sequence[str], axis: int, rules: Mapping[str, Rule]
) -> _Objects | None:
    """Return the objects of outputs; None where there are too many, or outputs of other forms.

    Of large ones, such as masks, values at even distances stand for all.
    """
    each = [found[name] for name in names if name in found]
    shapes = {values.shape[: axis + 1] for values in each}
    if (
        len(each) < len(names)
        or len(shapes) > 1
        or any(one.dtype.kind not in "biuf" for one in each)
    ):
        return None
    (shape,) = shapes
    count = math.prod(shape)
    if len(shape) <= axis or count > _MOST_OBJECTS:
        return None
    lists = np.repeat(np.arange(math.prod(shape[:-1])), shape[-1])[:, np.newaxis]
    values: list[Array] = [lists]
    allowed: list[Array] = [0 * lists]
    for name in names:
        tolerance = rules[name].tolerance_of(found[name])
        sizes = np.abs(found[name].astype(np.float64))
        limit = np.broadcast_to(tolerance.atol + tolerance.rtol * sizes, sizes.shape)
        if found[name].dtype.kind != "f":
            limit = np.broadcast_to(np.floor(tolerance.atol), sizes.shape)
        width = math.prod(sizes.shape[axis + 1 :])
        step = max(1, -(-width // _MOST_VALUES))
        values.append(found[name].astype(np.float64).reshape(count, width)[:, ::step])
        allowed.append(limit.reshape(count, width)[:, ::step])
    return _Objects(np.concatenate(values, axis=1), np.concatenate(allowed, axis=1))


def _deviation(ours: _Objects, first: _Objects, others: Sequence[_Objects]) -> float:
    """Return how far our objects are from those of the forms, 0 where they are these."""
    spreads = [0.0]
    for form in others:
        far = _distances(form, first)
        spreads.append(float(far[_pairs(far, 1.0)].max(initial=0.0)))
    spread = sorted(spreads)[-2:][0]  # as a single call may have been wrong
    limit = SPREADS * spread if spread > 1 else 1.0

    pool = first
    is_common = np.ones(len(first.values), bool)
    for form in others:
        rows, places = _within(_distances(form, pool), limit)
        is_common &= np.isin(np.arange(len(is_common)), places)
        new = np.setdiff1d(np.arange(len(form.values)), rows)
        pool = pool.joined(form, new)
        is_common = np.concatenate([is_common, np.zeros(len(new), bool)])

    far = _distances(ours, pool)
    rows, places = _within(far, limit)
    unknown = np.setdiff1d(np.arange(len(ours.values)), rows)
    lacking = np.setdiff1d(np.flatnonzero(is_common), places)
    if not (unknown.size or lacking.size):
        return 0.0
    found = [*far[unknown].min(axis=1, initial=math.inf)]
    found += [*far[:, lacking].min(axis=0, initial=math.inf)]
    largest = float(max(found))
    return largest if largest > limit else math.inf  # one that is there twice


@np.errstate(divide="ignore", invalid="ignore")
def _distances(ours: _Objects, expected: _Objects) -> Array:
    """Return how far each of ours is from each expected one, as a multiple of what is allowed."""
    far = np.zeros((len(ours.values), len(expected.values)))
    for number, row in enumerate(ours.values):
        off = np.abs(row - expected.values) / expected.allowed
        off = np.where(np.isnan(off), math.inf, off)
        is_same = (row == expected.values) | np.isnan(expected.values)
        far[number] = np.where(is_same, 0.0, off).max(axis=1)
    return far


def _pairs(far: Array, limit: float) -> tuple[Array, Array]:
    """Return the rows and columns of pairs, as many as can be within the limit."""
    from scipy.optimize import linear_sum_assignment

    is_near = far <= limit
    cost = np.minimum(far, _FAR) / (_FAR * (far.size + 1)) + ~is_near
    rows, columns = linear_sum_assignment(cost)
    return rows, columns


def _within(far: Array, limit: float) -> tuple[Array, Array]:
    """Return the rows and columns of the pairs that are within the limit."""
    rows, columns = _pairs(far, limit)
    is_near = far[rows, columns] <= limit
    return rows[is_near], columns[is_near]
