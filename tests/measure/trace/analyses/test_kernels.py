"""Analyses A8, A10 and A11."""

from __future__ import annotations

import pytest

from tests.support.analysis_rows import column_of


def test_kernels_come_with_their_layers_the_longest_first() -> None:
    assert column_of("kernels", "kernel") == ["gemm", "memcpy", "relu"]
    assert column_of("kernels", "layer") == ["conv1", "conv1", "relu"]
    assert column_of("kernels", "total_us") == [30, 10, 5]


def test_kernels_by_name_have_their_shares_of_all_kernels() -> None:
    shares = column_of("kernels-by-name", "share")
    assert shares == pytest.approx([30 / 45, 10 / 45, 5 / 45])


def test_kernels_by_layer_are_summed() -> None:
    assert column_of("kernels-by-layer", "layer") == ["conv1", "relu"]
    assert column_of("kernels-by-layer", "calls") == [2, 1]
    assert column_of("kernels-by-layer", "total_us") == [40, 5]
