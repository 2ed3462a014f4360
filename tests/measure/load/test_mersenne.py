"""Tests of the generator against values of the C++ standard, and of its order."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.measure.load.arrivals import OUTPUTS, MersenneTwister

DEFAULT_SEED = 5489
TEN_THOUSANDTH = 4_123_659_995
"""The 10,000th output of std::mt19937 (ISO C++, [rand.predef])."""


def test_the_ten_thousandth_output_is_the_standards() -> None:
    assert MersenneTwister(DEFAULT_SEED).outputs(10_000)[-1] == TEN_THOUSANDTH


@given(st.integers(0, 2**64), st.lists(st.integers(0, 3000), max_size=5))
def test_outputs_come_in_one_order_however_they_are_drawn(seed: int, counts: list[int]) -> None:
    generator = MersenneTwister(seed)
    parts: list[int] = []
    for count in counts:
        parts += generator.outputs(count).tolist()
        parts.append(generator.below(OUTPUTS))
    assert parts == MersenneTwister(seed).outputs(len(parts)).tolist()


@given(st.integers(0, 2**32), st.integers(1, 2**32 - 1), st.integers(0, 200))
def test_integers_are_those_drawn_one_by_one(seed: int, end: int, count: int) -> None:
    one_by_one = MersenneTwister(seed)
    expected = [one_by_one.below(end) for _ in range(count)]
    generator = MersenneTwister(seed)
    assert generator.integers(end, count).tolist() == expected
    assert generator.below(end) == one_by_one.below(end)


@given(st.integers(0, 2**32), st.lists(st.integers(), max_size=50))
def test_a_shuffle_keeps_the_values(seed: int, values: list[int]) -> None:
    shuffled = list(values)
    MersenneTwister(seed).shuffle(shuffled)
    assert Counter(shuffled) == Counter(values)


def test_integers_are_uniform() -> None:
    counts = np.bincount(MersenneTwister(1).integers(10, 100_000), minlength=10)
    assert counts.min() > 9_500
    assert counts.max() < 10_500
