"""Digests of repeated calls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mlms_predictors._run.repeats import _MOST_DIGESTS, _MOST_HELD, _MOST_KEPT, Repeats


def test_outputs_that_always_differ_are_counted_in_bounded_memory() -> None:
    repeats = Repeats()
    for number in range(300):
        repeats.add(0, [[np.array([number])]])
    assert (repeats.calls, repeats.differing, len(repeats.kept)) == (300, 299, _MOST_KEPT)
    assert len(repeats._counts[0]) == _MOST_DIGESTS


def test_a_wrong_call_is_kept_where_the_first_one_was_wrong_already() -> None:
    repeats = Repeats()
    for value in (9, 1, 1, 9):
        repeats.add(0, [[np.array([value])]])
    assert repeats.differing == 2
    assert [int(outputs[0][0]) for _, outputs in repeats.kept] == [1, 1, 9]


def test_a_text_among_many_that_is_another_is_seen() -> None:
    """The text of a long array of objects leaves out all but its ends."""
    texts = np.full(5000, "same", object)
    other = texts.copy()
    other[2500] = "Same"
    repeats = Repeats()
    for outputs in (texts, texts, other):
        repeats.add(0, [[outputs]])
    assert (repeats.calls, repeats.differing) == (3, 1)


@pytest.mark.parametrize("fault", [2.0, -1.0, math.nan, math.inf])
def test_a_rare_fault_is_kept_where_rounding_makes_each_call_another(fault: float) -> None:
    """The first eight were kept, and a model whose sums vary by thread hid what came later."""
    rng = np.random.default_rng(3)
    repeats = Repeats()
    for number in range(400):
        value = fault if number in (150, 151, 300) else 1 + 1e-7 * rng.random()
        repeats.add(number % 4, [[np.full(3, value), np.array([1, 2])]] * 4)
    assert len(repeats.kept) == _MOST_KEPT
    wrong = [
        np.array_equal(outputs[0], np.full(3, fault), equal_nan=True) for _, outputs in repeats.kept
    ]
    assert sum(wrong) >= 3, "both calls before a fault tell it from those after"


def test_outputs_of_other_forms_are_the_first_to_be_kept() -> None:
    repeats = Repeats()
    for number in range(50):
        repeats.add(0, [[np.ones(2 if number == 40 else 1) * (1 + number / 1e6)]])
    assert 2 in [len(outputs[0]) for _, outputs in repeats.kept]


def test_outputs_that_are_the_same_each_time_are_not_held_and_large_ones_never() -> None:
    repeats = Repeats()
    for value in (1, 1, 1):
        repeats.add(0, [[np.array([value])]])
    assert repeats._last == {}
    for value in (1, 2, 3):
        repeats.add(1, [[np.full(_MOST_HELD // 8 + 1, value)]] * 2)
    assert repeats._last == {}
