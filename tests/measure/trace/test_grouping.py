"""Groups of values and trimmed means."""

from __future__ import annotations

import math

import numpy as np

from pytest_mlms.measure.trace.intervals import grouped, trimmed_mean


def test_groups_have_the_order_of_their_first_values() -> None:
    groups = grouped(["b", "a", "b"], np.array([1, 2, 3]))
    assert list(groups) == ["b", "a"]
    assert groups["b"].tolist() == [1, 3]


def test_a_trimmed_mean_leaves_out_both_ends() -> None:
    assert trimmed_mean(np.array([1000, 2, 3, 4, -1000])) == 3
    assert trimmed_mean(np.array([5])) == 5


def test_the_trimmed_mean_of_nothing_is_not_a_number() -> None:
    assert math.isnan(trimmed_mean(np.array([])))
