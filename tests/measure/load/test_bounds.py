"""Tests of the bounds of a percentile: each side of a limit is a verdict."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.core.records import Verdict
from pytest_mlms.measure.load.evidence import judge_run
from pytest_mlms.measure.load.loadgen import bounds_of, worst_of

LATENCIES = st.lists(st.integers(1, 40), min_size=1, max_size=900)


@given(LATENCIES, st.integers(1, 41), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_a_limit_above_the_bounds_passes_and_one_below_fails(
    values: list[int], limit: int, share: float
) -> None:
    latencies = np.array(values, np.int64)
    bounds = bounds_of(latencies, share)
    verdict = judge_run(latencies, np.zeros_like(latencies), limit, share).verdict
    assert (verdict is Verdict.PASSED) == (bounds.high <= limit)
    assert (verdict is Verdict.FAILED) == (bounds.low > limit)
    assert bounds.low <= bounds.high


def test_too_few_values_meet_no_limit() -> None:
    bounds = bounds_of(np.arange(458), 0.99)
    assert bounds.high == math.inf
    assert bounds_of(np.arange(459), 0.99).high == 458


def test_the_worst_process_decides() -> None:
    fast = bounds_of(np.full(1000, 10), 0.99)
    slow = bounds_of(np.full(500, 20), 0.99)
    assert worst_of([fast, slow]) == (20, 20, 20, 500)
