"""Digests of repeated calls."""

from __future__ import annotations

import numpy as np
from mlms_predictors._run.repeats import _MOST_DIGESTS, Repeats


def test_outputs_that_always_differ_are_counted_in_bounded_memory() -> None:
    repeats = Repeats()
    for number in range(300):
        repeats.add(0, [[np.array([number])]])
    assert (repeats.calls, repeats.differing, len(repeats.kept)) == (300, 299, 3)
    assert len(repeats._counts[0]) == _MOST_DIGESTS
