"""Differences of an output that rounding explains, by its changes of the baseline's own outputs.

One pixel, token or score that rounding decides excuses no others: no more may differ, nor by more,
than where the baseline's own inputs are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.closeness import Rounding, Tolerance, differences

SPREADS = 2.0
"""How many times the baseline's own spread is taken for rounding."""

_EXACT = "iubU"  # kinds of types
_LEAST_FOR_SLACK = 32  # elements
_MOST_SLACK = 4
_MOST_OF_OTHERS = 30.0
"""How many times a row's own spread that of another row may stand for it.

The largest but one of four normal differences is so much less than half of a fifth once in 70,000.
"""


def are_explained(
    ours: Array, expected: Array, rounded: Sequence[Array], tolerance: Tolerance | Rounding
) -> Array:
    """Return which rows differ from the expected ones as those for rounded inputs do.

    All have one shape and type. Where fewer than two of the rounded ones differ none does.
    """

    def deviations(values: Array) -> Array:
        found = differences(values, expected, tolerance).deviation
        if expected.dtype.kind in "fc":
            found = np.where(np.isnan(expected), 0.0, found)
        return np.asarray(found.reshape(len(expected), -1))

    if expected.dtype.kind not in _EXACT:
        own = [deviations(each) for each in rounded]
        is_explained = are_within_spread(deviations(ours), own)
        lost = [_have_lost(each, expected) for each in rounded]
        if not np.any(lost):
            return is_explained
        # Infinity and NaN nearby don't tell how far numbers may be off: other answers there do.
        numbers = [
            np.where(each[:, np.newaxis], 0.0, row) for each, row in zip(lost, own, strict=True)
        ]
        farthest = np.max([-np.sort(-each, axis=1) for each in numbers], axis=0)
        is_known = ~np.all(lost, axis=0) & ~_have_lost(ours, expected)
        as_numbers = are_within_spread(deviations(ours), [farthest, farthest])
        return np.asarray(is_explained & (as_numbers | ~is_known))
    is_decided = _are_decided(expected, rounded, tolerance)
    of_forms = are_of_forms(ours, [expected, *rounded], lambda form: tolerance)
    return np.asarray(is_decided & of_forms)


def _have_lost(values: Array, expected: Array) -> Array:
    """Return which rows have NaN or infinity where numbers are expected."""
    if expected.dtype.kind not in "fc":
        return np.zeros(len(expected), bool)
    lost = np.isfinite(expected) & ~np.isfinite(values)
    return np.asarray(lost.reshape(len(expected), -1).any(axis=1))


def are_explained_by_many(
    ours: Array, expected: Array, rounded: Sequence[Array], tolerance: Tolerance | Rounding
) -> Array:
    """Return which rows differ as those for many rounded inputs do, and in no more elements.

    Of a mask each value of each pixel may be that of one of many forms.
    """
    own = _changed(ours, expected, tolerance).sum(axis=1)
    of_rounded = [_changed(each, expected, tolerance).sum(axis=1) for each in rounded]
    most = SPREADS * np.max(of_rounded, axis=0)
    is_explained = are_explained(ours, expected, rounded, tolerance)
    return np.asarray(is_explained & (own <= most))


def are_short(expected: Array, rounded: Sequence[Array], tolerance: Tolerance | Rounding) -> Array:
    """Return which rows rounding decides, and have too few elements for few rounded inputs.

    Those of whole numbers and texts: of the few elements that no form has by chance none is left
    over in them.
    """
    if expected.dtype.kind not in _EXACT:
        return np.zeros(len(expected), bool)
    is_short = _elements(expected) < _MOST_SLACK * _LEAST_FOR_SLACK
    return np.asarray(is_short & _are_decided(expected, rounded, tolerance))


def _are_decided(
    expected: Array, rounded: Sequence[Array], tolerance: Tolerance | Rounding
) -> Array:
    """Return which rows at least two of the rounded ones change."""
    changed = []
    for each in rounded:
        elements = _changed(each, expected, tolerance)
        changed.append(np.asarray(elements.any(axis=1)))
    return largest_but_one(changed)


def _changed(values: Array, expected: Array, tolerance: Tolerance | Rounding) -> Array:
    """Return which elements of each row (rows x elements) differ by more than is allowed."""
    deviation = differences(values, expected, tolerance).deviation
    return np.asarray(deviation.reshape(len(expected), -1) > 1)


def largest_but_one(values: Sequence[Array]) -> Array:
    """Return the largest but one of what several calls gave, as a single call may have been wrong.

    It is 0 of a single one.
    """
    return np.asarray(np.sort([np.zeros_like(values[0]), *values], axis=0)[-2])


def are_within_spread(ours: Array, own: Sequence[Array]) -> Array:
    """Return which rows (N x elements) of deviations are explained by the baseline's ``own``.

    Rounding changes other elements each time, so deviations are compared in falling order: the
    K-th must be at most twice the baseline's K/2-th, or what is allowed. Beyond that it is chance
    how far a row is off, so that the largest of such rows counts.
    """
    ranked = -np.sort(-ours, axis=1)
    spread = largest_but_one([-np.sort(-each, axis=1) for each in own])
    of_others = np.minimum(spread.max(axis=0, initial=0.0), _MOST_OF_OTHERS * spread)
    spread = np.where(spread > 1, of_others, spread)
    ranks = np.arange(ours.shape[1])
    halves = np.maximum(ranks - _slack(len(ranks)), 0) // 2
    most = np.maximum(1.0, SPREADS * spread[:, halves])
    return np.asarray((ranked <= most).all(axis=1))


def are_of_forms(
    ours: Array, forms: Sequence[Array], tolerance_of: Callable[[Array], Tolerance | Rounding]
) -> Array:
    """Return which rows have the elements of the ``forms``, or few others, as each form has, too.

    The forms are what the baseline gives for the inputs, and for rounded ones; those of one shape
    are compared. Of a mask each has some pixels that no other has, and an answer goes on as another
    does after the token that rounding decides. Of texts, elements are characters, of which those
    count that would have to be edited. If no two forms have one shape nothing is known, and all
    rows are taken for theirs.
    """
    own = []
    for number, form in enumerate(forms):
        rest = [*forms[:number], *forms[number + 1 :]]
        others = _of_shape(form, rest)
        if others:
            own.append(_new_elements(form, others, tolerance_of))
    if not own:
        return np.ones(len(ours), bool)
    new = _new_elements(ours, _of_shape(ours, forms), tolerance_of)
    most = SPREADS * largest_but_one(own) + _slack(_elements(ours))
    return np.asarray(new <= most)


def _of_shape(values: Array, forms: Sequence[Array]) -> list[Array]:
    return [form for form in forms if form.shape == values.shape]


def _slack(elements: Any) -> Any:
    """Return how many of some elements may differ by chance, although none of the baseline's do."""
    return np.minimum(_MOST_SLACK, elements // _LEAST_FOR_SLACK)


def _elements(values: Array) -> Any:
    """Return the number of elements of a row, of texts that of the characters of each row."""
    if values.dtype.kind != "U":
        return values[0].size
    return np.char.str_len(values).reshape(len(values), -1).sum(axis=1)


def _new_elements(
    values: Array,
    forms: Sequence[Array],
    tolerance_of: Callable[[Array], Tolerance | Rounding],
) -> Array:
    """Return how many elements of each row no form has at their place."""
    if values.dtype.kind == "U":
        edits = [_edits(values, form) for form in forms]
        return np.asarray(np.min(edits, axis=0).reshape(len(values), -1).sum(axis=1))
    is_new = np.ones((len(values), values[0].size), bool)
    for form in forms:
        is_new &= _changed(values, form, tolerance_of(form))
    return np.asarray(is_new.sum(axis=1))


def _edits(ours: Array, texts: Array) -> Array:
    """Return how many characters of each text would be changed, left out or put in.

    This is the distance of Levenshtein, computed a row at a time.
    """
    found = np.zeros(ours.shape, int)
    for place in zip(*np.nonzero(ours != texts), strict=True):
        letters = np.array(list(texts[place]), "U1")
        ends = np.arange(len(letters) + 1)
        row = ends
        for number, letter in enumerate(ours[place], start=1):
            kept_or_changed = row[:-1] + (letters != letter)
            best = np.concatenate([[number], np.minimum(kept_or_changed, row[1:] + 1)])
            row = np.minimum.accumulate(best - ends) + ends
        found[place] = row[-1]
    return found
