"""Operations of products by their shapes, compared with products that numpy makes."""

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
SMALL_SIZE = st.integers(1, 4)
STACK = st.lists(st.integers(1, 3), max_size=2)

FORMULAS = {"Conv": convolution, "Up": transposed_convolution}


@given(SIZE, SIZE, SIZE)
def test_transposed_matrices_and_split_axes_count_the_same(m: int, k: int, n: int) -> None:
    expected = 2 * m * k * n
    for left in ((m, k), (k, m), (m, k, 1), (1, m, k)):
        assert contraction(left, (k, n), (m, n)) == expected
        assert contraction(left, (n, k), (m, n)) == expected


@given(STACK, SMALL_SIZE, SMALL_SIZE, SMALL_SIZE)
def test_stacks_of_matrices_are_counted_one_by_one(
    stack: list[int], m: int, k: int, n: int
) -> None:
    left = np.zeros((*stack, m, k))
    right = np.zeros((k, n))
    product = np.matmul(left, right)
    expected = 2 * k * product.size
    assert matrix_products(left.shape, right.shape, product.shape) == expected
    assert matrix_products((*stack, k, m), right.shape, product.shape) == expected


@given(STACK, SMALL_SIZE, SMALL_SIZE)
def test_a_vector_stands_for_a_matrix(stack: list[int], k: int, n: int) -> None:
    vector = np.zeros(k)
    matrices = np.zeros((*stack, k, n))
    product = np.matmul(vector, matrices)
    expected = 2 * k * n * math.prod(stack)
    assert matrix_products(vector.shape, matrices.shape, product.shape) == expected
    assert matrix_products((*stack, n, k), vector.shape, (*stack, n)) == expected


@pytest.mark.parametrize(("m", "k", "n"), [(1 << 20, 3 << 18, 5 << 17), (999_983, 1_000_003, 7)])
def test_large_products_are_counted_exactly(m: int, k: int, n: int) -> None:
    assert contraction((m, k), (k, n), (m, n)) == 2 * m * k * n


def test_convolutions_are_counted_by_their_kernel_and_group() -> None:
    shapes = [(1, 4, 6, 6), (8, 2, 3, 3), (1, 8, 6, 6)]  # two groups
    assert count("Conv", FORMULAS, shapes) == 2 * (8 * 36) * (2 * 9)
    shapes = [(1, 8, 6, 6), (8, 3, 2, 2), (1, 3, 12, 12)]
    assert count("Up", FORMULAS, shapes) == 2 * (8 * 36) * (3 * 4)


def test_a_formula_that_lacks_a_shape_gives_no_count() -> None:
    assert count("Conv", FORMULAS, [(1, 4, 6, 6), None, (1, 8, 6, 6)]) is None


@pytest.mark.parametrize("kind", ["Relu", "Convert", "ElementTimes", "Identity", "CONCATENATION"])
def test_a_layer_that_computes_no_product_counts_nothing(kind: str) -> None:
    assert count(kind, FORMULAS, []) == 0


@pytest.mark.parametrize(
    "kind",
    [
        "LSTM",
        "QLinearConv",
        "If",
        "_while_loop",
        "GRUUnit",
        "MultiHeadAttention",
        "Int8FC",
        "linalg_gemm2",
        "dot",
    ],
)
def test_a_layer_that_computes_and_has_no_formula_has_no_count(kind: str) -> None:
    assert count(kind, FORMULAS, []) is None
