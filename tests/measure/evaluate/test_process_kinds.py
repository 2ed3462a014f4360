"""Tests of the kinds that fresh processes are of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.measure.evaluate.process_kinds import ProcessKinds, find_kinds

ALIKE = [1.00, 1.01, 0.995, 1.004, 0.99, 1.0]


@pytest.mark.parametrize("count", [3, 6])
def test_processes_that_agree_are_of_one_kind(count: int) -> None:
    assert find_kinds(ALIKE[:count]) is None


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            [1.0, 1.0, 2.1],
            "1 of 3 processes stands apart (it has 2.1 times the value of the others)",
        ),
        ([0.5, 1.0, 1.0], "1 of 3 processes stands apart (the others have 2 times its value)"),
        (
            [0.8, 1.2, 0.81, 1.2, 1.2, 0.8],
            "3 of 6 processes have 1.49 times the value of the others",
        ),
        ([1.0, 1.5, 2.0], "no two of 3 processes agree (the largest is 2 times the least)"),
    ],
)
def test_processes_that_do_not_agree_are_described(values: list[float], text: str) -> None:
    assert str(find_kinds(values)) == text


@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0], [0.0, 1.0, 2.0]])
def test_two_processes_and_values_of_zero_show_nothing(values: list[float]) -> None:
    assert find_kinds(values) is None


def test_kinds_that_differ_by_less_than_their_error_are_one() -> None:
    assert find_kinds([1.0, 1.0, 1.2], error=0.1) is None


@given(st.permutations([1.0, 1.01, 2.0, 2.02, 1.0]), st.floats(1e-9, 1e9))
def test_neither_the_order_nor_the_unit_matters(values: list[float], unit: float) -> None:
    found = find_kinds([unit * value for value in values])
    assert found is not None
    assert found.larger == 2
    assert found.ratio == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("count", [3, 6, 12])
def test_processes_that_differ_by_little_are_seldom_of_two_kinds(count: int) -> None:
    generator = np.random.default_rng(0)
    found = 0
    for _ in range(500):
        values = np.exp(0.03 * generator.normal(size=count))
        found += find_kinds(values.tolist()) is not None
    assert found <= 0.02 * 500


def test_kinds_are_a_record() -> None:
    assert find_kinds([1.0, 1.0, 3.0]) == ProcessKinds(1, 3, math.exp(math.log(3)))
