"""Analyses A2 to A7, A12 and A13."""

from __future__ import annotations

from tests.support.analysis_rows import column_of, rows_of


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
