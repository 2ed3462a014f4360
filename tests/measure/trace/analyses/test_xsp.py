"""The analyses A1 to A15 of XSP."""

from __future__ import annotations

import pytest

from pytest_mlms.measure.trace.analyses.xsp import optimal_batch_size
from pytest_mlms.measure.trace.records import LayerWork
from tests.support.analysis_rows import column_of, rows_of
from tests.support.traced_models import traced_model


@pytest.mark.parametrize(
    ("throughputs", "best"),
    [
        ({1: 100, 2: 190, 4: 200, 8: 209}, 4),
        ({4: 400, 1: 100, 2: 200}, 4),
        ({1: 100, 2: 105}, 1),
        ({8: 5}, 8),
    ],
)
def test_the_optimal_batch_size_is_that_of_the_last_doubling_that_gains_more_than_5_percent(
    throughputs: dict[int, float], best: int
) -> None:
    assert optimal_batch_size(throughputs) == best


def test_each_batch_size_has_its_latency_and_throughput() -> None:
    traces = [traced_model(4, 236), traced_model(1, 100), traced_model(2, 120)]
    rows = rows_of("model", *traces)
    assert [row["batch_size"] for row in rows] == [1, 2, 4]
    assert [row["latency_us"] for row in rows] == [100, 120, 236]
    assert [row["optimal"] for row in rows] == [False, True, False]
    assert rows[0]["inputs_per_s"] == pytest.approx(10_000)


def test_devices_have_series_of_their_own() -> None:
    traces = [traced_model(1, 100), traced_model(2, 300, device="cuda:0")]
    rows = rows_of("model", *traces)
    assert [row["optimal"] for row in rows] == [True, True]


def test_stacks_have_series_of_their_own_whose_batch_sizes_are_joined() -> None:
    traces = [
        traced_model(size, 100 * size, case=f"{stack}-cpu-b{size}")
        for stack in ("old", "new")
        for size in (1, 2)
    ]
    rows = rows_of("model", *traces)
    assert [(row["case"], row["batch_size"]) for row in rows] == [
        ("old-cpu", 1),
        ("old-cpu", 2),
        ("new-cpu", 1),
        ("new-cpu", 2),
    ]


def test_each_layer_has_its_latency_and_memory() -> None:
    assert column_of("layers", "name") == ["conv1", "relu"]
    assert column_of("layers", "latency_us") == [60, 40]
    assert column_of("layers", "bytes") == [400, 100]
    assert column_of("layer-latency", "latency_us") == [60, 40]
    assert column_of("layer-memory", "bytes") == [400, 100]


def test_types_have_shares_of_layers_latency_and_memory() -> None:
    assert column_of("types", "type") == ["Conv", "Relu"]
    assert column_of("types", "share") == [0.5, 0.5]
    assert column_of("latency-by-type", "share") == [0.6, 0.4]
    assert column_of("memory-by-type", "share") == [0.8, 0.2]


def test_metrics_are_the_work_of_a_layer_beside_the_time_of_its_kernels() -> None:
    conv, relu = rows_of("metrics-by-layer")
    assert conv["kernel_us"] == 40
    assert conv["flops"] == 6_000_000
    assert conv["copied_bytes"] == 512
    assert relu["copied_bytes"] == 0


def test_the_time_of_a_layer_is_that_of_its_kernels_and_the_rest() -> None:
    assert column_of("gpu-and-cpu", "latency_us") == [60, 40]
    assert column_of("gpu-and-cpu", "gpu_us") == [40, 5]
    assert column_of("gpu-and-cpu", "other_us") == [20, 35]


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
