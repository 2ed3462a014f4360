"""Tests of both definitions of percentiles."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.measure.load.loadgen import loadgen_percentile, percentile_pair


def test_loadgens_percentile_is_a_value_and_ours_lies_between_two() -> None:
    ordered = np.arange(0, 1000, 10)
    assert percentile_pair(ordered, 0.9) == pytest.approx((900, 891))
    assert percentile_pair(ordered, 0.99) == pytest.approx((990, 980.1))


def test_the_percentile_of_one_value_is_that_value() -> None:
    assert loadgen_percentile(np.array([7]), 0.999) == 7
