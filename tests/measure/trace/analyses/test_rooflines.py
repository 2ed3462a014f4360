"""Analyses A9, A14 and A15."""

from __future__ import annotations

import pytest

from pytest_mlms.measure.trace.records import LayerWork
from tests.support.analysis_rows import rows_of
from tests.support.traced_models import traced_model


def test_the_longest_kernel_of_a_layer_does_its_operations() -> None:
    gemm, relu = rows_of("kernel-roofline")
    assert gemm["kernel"] == "gemm"
    assert relu["kernel"] == "relu"
    assert gemm["flops_per_byte"] == 100
    assert gemm["bound"] == "compute"
    assert gemm["gflops_per_s"] == pytest.approx(6e6 / 30e-6 / 1e9)


def test_a_layer_is_timed_by_its_kernels_with_its_copies() -> None:
    conv, relu = rows_of("layer-roofline")
    assert conv["gflops_per_s"] == pytest.approx(6e6 / 40e-6 / 1e9)
    assert relu["bound"] == "memory"
    assert relu["roof_gflops_per_s"] == pytest.approx(0.4)


def test_a_model_has_the_sums_of_kernels_and_of_work() -> None:
    (model,) = rows_of("model-roofline")
    assert model["kernels"] == 3
    assert model["kernel_us"] == 45
    assert model["flops"] == 6_001_000
    assert model["gflops_per_s"] == pytest.approx(6_001_000 / 100e-6 / 1e9)


def test_without_static_work_nothing_of_the_roofline_is_known() -> None:
    conv, _ = rows_of("layer-roofline", traced_model(1, 100, static=()))
    assert conv["flops"] is None
    assert conv["bound"] is None


@pytest.mark.parametrize("analysis", ["kernel-roofline", "layer-roofline", "model-roofline"])
def test_quantized_layers_are_not_held_to_the_roof_of_float32(analysis: str) -> None:
    quantized = [LayerWork("conv1", "QLinearConv", 6_000_000, 60_000)]
    first = rows_of(analysis, traced_model(1, 100, static=quantized, conv="QLinearConv"))[0]
    assert first["flops"] == 6_000_000
    assert first["bound"] is None


def test_without_peaks_only_the_work_is_known() -> None:
    conv, _ = rows_of("layer-roofline", traced_model(1, 100, peaks=None))
    assert conv["flops"] == 6_000_000
    assert conv["bound"] is None
