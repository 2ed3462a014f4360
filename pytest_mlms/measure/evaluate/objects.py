"""Objects that a model detects, where rounding decides about them.

It decides the order of objects whose scores are equal, and how many objects there are.
"""

from __future__ import annotations

import copy
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.closeness import Rounding, Rule, Tolerance, differences
from pytest_mlms.measure.evaluate.rounded_elements import (
    SPREADS,
    are_explained,
    are_of_forms,
    are_within_spread,
    largest_but_one,
)

Array = NDArray[Any]
Outputs = Mapping[str, Array]

_ROWS = ("boxes", "scores", "classes", "masks")
_MOST_EQUAL = 512  # objects of equal scores, of which each is compared with each
_MOST_VALUES = 64  # of an object, by which it is told from others
_MOST_OBJECTS = 1024  # of which each is compared with each
_FAR = 1e6  # times what is allowed, beyond which nothing is nearer


@dataclass(frozen=True)
class ObjectOrder:
    """The outputs that have a row for each object, in one order; the boxes come first.

    ``scores`` is the output with the scores: in its ``column``, or None where it has nothing else.
    """

    names: Sequence[str]
    scores: str
    column: int | None = None

    @np.errstate(invalid="ignore")  # infinity less infinity: no tie, and no place in an order
    def aligned(self, ours: Outputs, expected: Outputs, tolerance: Tolerance | Rounding) -> Outputs:
        """Return our outputs, objects whose expected scores are equal in the order expected.

        ``tolerance`` is for the output with the scores. Outputs of other shapes, and objects that
        aren't sorted by score on both sides, stay as they are.
        """
        values = expected[self.scores].astype(np.float64)
        if self.column is not None and (values.ndim < 2 or values.shape[-1] <= self.column):
            return ours
        scores = self._scores(values)
        if not (scores.ndim and scores.size and self._have_rows(ours, expected, scores.shape)):
            return ours

        # Scores, and the gaps between scores that count as equal: a row for each list of objects.
        lists = (-1, scores.shape[-1])
        allowed = np.broadcast_to(tolerance.atol + tolerance.rtol * np.abs(values), values.shape)
        scores = scores.reshape(lists)
        gaps = 2 * self._scores(allowed).reshape(lists)
        own_scores = self._scores(ours[self.scores].astype(np.float64)).reshape(lists)

        axes = values.ndim if self.column is None else values.ndim - 1
        theirs = [_by_object(expected[name], axes) for name in self.names]
        moved = [_by_object(ours[name], axes).copy() for name in self.names]
        for number, (row, own_row, gap) in enumerate(zip(scores, own_scores, gaps, strict=True)):
            is_sorted = not (row[1:] - row[:-1] > gap[:-1]).any()
            if is_sorted and not (np.abs(own_row - row) > gap).any():
                expected_objects = [objects[number] for objects in theirs]
                own_objects = [objects[number] for objects in moved]
                _order_ties(own_objects, expected_objects, _ties(row, gap))

        aligned = dict(ours)
        for name, objects in zip(self.names, moved, strict=True):
            aligned[name] = objects.reshape(ours[name].shape)
        return aligned

    def _scores(self, values: Array) -> Array:
        return values if self.column is None else values[..., self.column]

    def _have_rows(self, ours: Outputs, expected: Outputs, shape: tuple[int, ...]) -> bool:
        """Return whether all outputs have a row for each object on both sides."""
        for name in self.names:
            if name not in ours or name not in expected:
                return False
            if ours[name].shape != expected[name].shape:
                return False
            if expected[name].shape[: len(shape)] != shape:
                return False
        return expected[self.names[0]].ndim > len(shape)  # else it is a score for each class


def order_of(outputs: Sequence[Output]) -> ObjectOrder | None:
    """Return the order of a manifest's objects; None where there are no objects with scores."""
    for output in outputs:
        for step in output.steps:
            if step.name == "columns" and "score" in step.parameters.names:
                column = step.parameters.names.index("score")
                return ObjectOrder([output.name], output.name, column)
    scores = [output.name for output in outputs if output.type == "scores"]
    if not scores:
        return None
    names = [output.name for kind in _ROWS for output in outputs if output.type == kind]
    return ObjectOrder(names, scores[0])


def _by_object(values: Array, axes: int) -> Array:
    """Return values as lists x objects x values of each."""
    lists = math.prod(values.shape[: axes - 1])
    return values.reshape(lists, values.shape[axes - 1], -1)


def _ties(scores: Array, gaps: Array) -> list[slice]:
    """Return the runs of several objects whose scores follow each other within the gaps."""
    is_close = np.abs(scores[:-1] - scores[1:]) <= gaps[:-1]
    bounds = [0, *(np.flatnonzero(~is_close) + 1).tolist(), len(scores)]
    ties = []
    for first, end in pairwise(bounds):
        if 1 < end - first <= _MOST_EQUAL:
            ties.append(slice(first, end))
    return ties


def _order_ties(ours: Sequence[Array], expected: Sequence[Array], ties: Sequence[slice]) -> None:
    """Bring our objects of equal scores into the order of the expected ones, in place."""
    for tie in ties:
        tied = [objects[tie] for objects in expected]
        own_tied = [objects[tie] for objects in ours]
        nearest = _matched(tied, own_tied)
        for objects in ours:
            objects[tie] = objects[tie][nearest]


def _matched(expected: Sequence[Array], ours: Sequence[Array]) -> list[int]:
    """Return for each expected object the number of ours that is nearest.

    The order stays where one of ours would be matched twice.
    """
    count = len(expected[0])
    distances = np.zeros((count, count))
    for theirs, values in zip(expected, ours, strict=True):
        if theirs.shape[1] <= _MOST_VALUES:
            off = np.abs(theirs.astype(np.float64)[:, np.newaxis] - values.astype(np.float64))
            distances += np.nan_to_num(off, nan=np.inf).max(axis=2, initial=0.0)
    nearest = []
    for row in distances:
        best = int(row.argmin())
        nearest.append(best)
        distances[:, best] = np.inf
    return nearest if len(set(nearest)) == count else list(range(count))


class _Objects(NamedTuple):
    """A row of values for each object, and how far each of them may be off.

    ``large`` has these of each output of which some values stand for all, such as masks.
    """

    values: Array
    allowed: Array
    large: Sequence[tuple[Array, Array]] = ()

    def fits(self, other: _Objects) -> bool:
        """Return whether both have the same number of values an object."""
        return bool(self.values.shape[1] == other.values.shape[1])

    def joined(self, other: _Objects, rows: Array) -> _Objects:
        """Return these objects, and some of the others."""
        values = np.concatenate([self.values, other.values[rows]])
        allowed = np.concatenate([self.allowed, other.allowed[rows]])
        return _Objects(values, allowed)


def deviation_from_forms(
    ours: Outputs, forms: Sequence[Outputs], rules: Mapping[str, Rule]
) -> float:
    """Return how far our objects are from the objects of the ``forms`` of a model's outputs.

    The first form is what the model gives for the same inputs, others are for rounded ones;
    ``rules`` are for the outputs that vary in their number of objects, along one axis. Each of our
    objects must be one of any form, and each that all forms have must be one of ours. Where nothing
    tells objects apart, each element is compared with that of the same place. The result is a
    multiple of what is allowed: 0 where they are, also where the forms differ in their common
    objects as much; else more than 1.
    """
    rules = copy.deepcopy(rules)  # which remember sizes: ours are no measure
    largest = 0.0
    untold = set(rules)
    for names, axis in _groups(ours, forms[0], rules):
        first, *others = (_objects(form, names, axis, rules) for form in forms)
        own = _objects(ours, names, axis, rules)
        if own is not None and first is not None:
            untold -= set(names)
            known = [each for each in others if each is not None and each.fits(first)]
            largest = max(largest, _deviation(own, first, known))
    for name in untold:
        rows = [form[name][np.newaxis] for form in forms if name in form]
        if not are_of_forms(ours[name][np.newaxis], rows, rules[name].tolerance_of).all():
            largest = math.inf
    return largest


def _groups(
    ours: Outputs, first: Outputs, rules: Mapping[str, Rule]
) -> list[tuple[list[str], int]]:
    """Return outputs that have a row for each of the same objects, and the axis of these."""
    found: dict[tuple[tuple[int, ...], int], list[str]] = {}
    for name in rules:
        own_shape, shape = ours[name].shape, first[name].shape
        if len(own_shape) != len(shape):
            continue
        unlike = [axis for axis, size in enumerate(shape) if own_shape[axis] != size]
        if len(unlike) == 1:
            axis = unlike[0]
            found.setdefault((own_shape[: axis + 1], shape[axis]), []).append(name)
    groups = []
    for (own_shape, _), names in found.items():
        if any(rules[name].order or first[name].dtype.kind == "f" for name in names):
            groups.append((names, len(own_shape) - 1))
    return groups


def _objects(
    found: Outputs, names: Sequence[str], axis: int, rules: Mapping[str, Rule]
) -> _Objects | None:
    """Return the objects of outputs; None where there are too many, or outputs of other forms.

    Large ones, such as masks, are told apart by values at even distances.
    """
    if any(name not in found or found[name].dtype.kind not in "biufU" for name in names):
        return None
    shapes = {found[name].shape[: axis + 1] for name in names}
    if len(shapes) > 1:
        return None
    (shape,) = shapes
    count = math.prod(shape)
    if len(shape) <= axis or count > _MOST_OBJECTS:
        return None

    # The first value of an object is the number of its list, which may not be off at all.
    lists = np.repeat(np.arange(math.prod(shape[:-1])), shape[-1])[:, np.newaxis]
    values: list[Array] = [lists]
    allowed: list[Array] = [0 * lists]
    large: list[tuple[Array, Array]] = []
    for name in names:
        output = found[name]
        numbers, limits = _as_numbers(output, rules[name])
        width = math.prod(output.shape[axis + 1 :])
        step = max(1, math.ceil(width / _MOST_VALUES))
        limits = limits.reshape(count, width)
        values.append(numbers.reshape(count, width)[:, ::step])
        allowed.append(limits[:, ::step])
        if step > 1 and output.dtype.kind != "U":
            large.append((output.reshape(count, width), limits))
    return _Objects(np.concatenate(values, axis=1), np.concatenate(allowed, axis=1), large)


def _as_numbers(output: Array, rule: Rule) -> tuple[Array, Array]:
    """Return the numbers of an output, of texts their digests, and how far each may be off."""
    tolerance = rule.tolerance_of(output)
    if output.dtype.kind == "U":
        numbers = _digests(output)
        limit = np.zeros(())
    else:
        numbers = output.astype(np.float64)
        limit = np.asarray(tolerance.atol + tolerance.rtol * np.abs(numbers))
        if output.dtype.kind != "f":
            limit = np.floor(tolerance.atol)
    return numbers, np.broadcast_to(limit, numbers.shape)


def _digests(texts: Array) -> Array:
    """Return a number for each text, which tells it from others as no rounding does."""
    numbers = [zlib.crc32(text.encode("utf-8", "surrogatepass")) for text in texts.flat]
    return np.reshape(np.array(numbers, np.float64), texts.shape)


def _deviation(ours: _Objects, first: _Objects, others: Sequence[_Objects]) -> float:
    """Return how far our objects are from the forms' objects, 0 where they are these."""
    width = max(len(each.values) for each in (ours, first, *others))
    spreads = [_spread(form, first, width) for form in others] or [np.zeros((1, width))]
    spread = float(largest_but_one(spreads).max(initial=0.0))
    limit = SPREADS * spread if spread > 1 else 1.0

    pool, is_common = _pool(first, others, limit)
    distances = _distances(ours, pool)
    rows, places = _within(distances, limit)
    unknown = np.setdiff1d(np.arange(len(ours.values)), rows)
    lacking = np.setdiff1d(np.flatnonzero(is_common), places)
    if unknown.size or lacking.size:
        of_unknown = distances[unknown].min(axis=1, initial=math.inf)
        of_lacking = distances[:, lacking].min(axis=0, initial=math.inf)
        largest = float(max(*of_unknown, *of_lacking, 0.0))
        return largest if largest > limit else math.inf  # one that is there twice
    if not _are_large_known(ours, [first, *others], limit):
        return math.inf
    matched = _row_of(distances[rows, places], width)
    return 0.0 if are_within_spread(matched, spreads).all() else float(matched.max())


def _pool(first: _Objects, others: Sequence[_Objects], limit: float) -> tuple[_Objects, Array]:
    """Return all objects of the forms, and which of them each form has."""
    pool = first
    is_common = np.ones(len(first.values), bool)
    for form in others:
        rows, places = _within(_distances(form, pool), limit)
        is_common &= np.isin(np.arange(len(is_common)), places)
        new = np.setdiff1d(np.arange(len(form.values)), rows)
        pool = pool.joined(form, new)
        is_common = np.concatenate([is_common, np.zeros(len(new), bool)])
    return pool, is_common


@np.errstate(invalid="ignore")  # an infinite limit of what is exact
def _are_large_known(ours: _Objects, forms: Sequence[_Objects], limit: float) -> bool:
    """Return whether large outputs of each object are as those of the forms' nearest ones are."""
    near = [_distances(ours, form) for form in forms]
    for number, (values, _) in enumerate(ours.large):
        for row, value in enumerate(values):
            known = []
            for form, distances in zip(forms, near, strict=True):
                if distances.shape[1] and distances[row].min() <= limit:
                    place = int(distances[row].argmin())
                    known.append([each[place][np.newaxis] for each in form.large[number]])
            (first, allowed), *_ = known
            others = [each for each, _ in known[1:]] or [first]
            own = value[np.newaxis]
            tolerance = Rounding(np.where(allowed > 0, limit * allowed, 0.0))
            is_off = (differences(own, first, tolerance).deviation > 1).any()
            if is_off and not are_explained(own, first, others, tolerance).all():
                return False
    return True


def _spread(form: _Objects, first: _Objects, width: int) -> Array:
    """Return how far the objects of a form are from the first one's, in a row."""
    distances = _distances(form, first)
    return _row_of(distances[_pairs(distances, 1.0)], width)


def _row_of(values: Array, width: int) -> Array:
    return np.pad(-np.sort(-values), (0, width - len(values)))[np.newaxis]


@np.errstate(divide="ignore", invalid="ignore")
def _distances(ours: _Objects, expected: _Objects) -> Array:
    """Return the distance of each of ours from each expected one, in multiples of the tolerance."""
    distances = np.zeros((len(ours.values), len(expected.values)))
    for number, row in enumerate(ours.values):
        off = np.abs(row - expected.values) / expected.allowed
        off[np.isnan(off)] = math.inf
        off[(row == expected.values) | np.isnan(expected.values)] = 0.0
        distances[number] = off.max(axis=1)
    return distances


def _pairs(distances: Array, limit: float) -> tuple[Array, Array]:
    """Return the rows and columns of pairs, as many as can be within the limit."""
    from scipy.optimize import linear_sum_assignment

    is_far = ~(distances <= limit)
    share = np.minimum(distances, _FAR) / _FAR  # all of them together are less than one far pair
    rows, columns = linear_sum_assignment(is_far + share / (distances.size + 1))
    return rows, columns


def _within(distances: Array, limit: float) -> tuple[Array, Array]:
    """Return the rows and columns of the pairs that are within the limit."""
    rows, columns = _pairs(distances, limit)
    is_near = distances[rows, columns] <= limit
    return rows[is_near], columns[is_near]
