"""What products take by their shapes, against those that numpy makes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._run.products import (
    contraction,
    convolution,
    count,
    matrix_products,
    transposed_convolution,
)

SIZE = st.integers(1, 5000)


@given(SIZE, SIZE, SIZE)
def test_a_product_of_matrices_is_counted_whichever_is_turned_and_however_axes_are_split(
    m: int, k: int, n: int
) -> None:
    for left in ((m, k), (k, m), (m, k, 1), (1, m, k)):
        for right in ((k, n), (n, k)):
            assert contraction(left, right, (m, n)) == 2 * m * k * n


@given(st.lists(st.integers(1, 3), max_size=2), *[st.integers(1, 4)] * 3)
def test_stacks_of_matrices_are_counted_one_by_one(
    stack: list[int], m: int, k: int, n: int
) -> None:
    made = np.matmul(np.zeros((*stack, m, k)), np.zeros((k, n)))
    assert matrix_products((*stack, m, k), (k, n), made.shape) == 2 * k * made.size
    assert matrix_products((*stack, k, m), (k, n), made.shape) == 2 * k * made.size
    vector = np.matmul(np.zeros(k), np.zeros((*stack, k, n)))
    assert matrix_products((k,), (*stack, k, n), vector.shape) == 2 * k * vector.size
    assert matrix_products((*stack, m, k), (k,), (*stack, m)) == 2 * k * m * math.prod(stack)


@pytest.mark.parametrize("large", [(1 << 20, 3 << 18, 5 << 17), (999_983, 1_000_003, 7)])
def test_large_products_are_counted_exactly(large: tuple[int, int, int]) -> None:
    m, k, n = large
    assert contraction((m, k), (k, n), (m, n)) == 2 * m * k * n


def test_what_has_no_formula_counts_nothing_unless_it_computes() -> None:
    formulas = {"Conv": convolution, "Up": transposed_convolution}
    assert count("Conv", formulas, [(1, 4, 6, 6), (8, 2, 3, 3), (1, 8, 6, 6)]) == 2 * 8 * 36 * 18
    assert count("Up", formulas, [(1, 8, 6, 6), (8, 3, 2, 2), (1, 3, 12, 12)]) == 2 * 8 * 36 * 12
    assert count("Conv", formulas, [(1, 4, 6, 6), None, (1, 8, 6, 6)]) is None
    assert [
        count(kind, formulas, [])
        for kind in ("Relu", "Convert", "ElementTimes", "Identity", "CONCATENATION")
    ] == [0] * 5
    opaque = [
        "LSTM",
        "QLinearConv",
        "If",
        "_while_loop",
        "GRUUnit",
        "MultiHeadAttention",
        "Int8FC",
        "linalg_gemm2",
        "dot",
    ]
    assert [count(kind, formulas, []) for kind in opaque] == [None] * len(opaque)
