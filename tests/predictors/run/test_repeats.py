"""Digests of repeated calls."""

from __future__ import annotations

import numpy as np
from mlms_predictors._run.repeats import _MOST_DIGESTS, _MOST_KEPT, Repeats


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
