"""Rooflines."""

from __future__ import annotations

import pytest

from pytest_mlms.measure.structure.cost import LayerCost
from pytest_mlms.measure.trace.records import LayerWork, Peaks
from pytest_mlms.measure.trace.roofline import Work, roofline_point, work_of

PEAKS = Peaks(flops=100e9, bytes=10e9)


def test_work_of_low_intensity_is_bound_by_memory() -> None:
    point = roofline_point(Work(10, 10), 1.001e-9, PEAKS)
    assert point is not None
    assert point.bound == "memory"
    assert point.intensity == 1
    assert point.attainable_gflops_per_s == 10
    assert point.efficiency == pytest.approx(1, rel=0.01)


def test_work_of_high_intensity_is_bound_by_compute() -> None:
    point = roofline_point(Work(1000, 10), 1e-7, PEAKS)
    assert point is not None
    assert point.bound == "compute"
    assert point.attainable_gflops_per_s == 100
    assert point.gflops_per_s == pytest.approx(10)
    assert point.efficiency == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("work", "bound"), [(Work(10, 10), "cache"), (Work(1000, 10), "above peak")]
)
def test_what_is_above_the_roof_says_so(work: Work, bound: str) -> None:
    point = roofline_point(work, 1e-10, PEAKS)
    assert point is not None
    assert point.efficiency > 1
    assert point.bound == bound


@pytest.mark.parametrize(
    ("work", "seconds"), [(Work(0, 10), 1), (Work(10, 0), 1), (Work(10, 10), 0)]
)
def test_there_is_no_point_without_work_or_time(work: Work, seconds: float) -> None:
    assert roofline_point(work, seconds, PEAKS) is None


def layer_cost(input_bytes: int | None) -> LayerCost:
    return LayerCost(
        name="conv",
        type="Conv",
        shape=None,
        parameters=3,
        flops=100,
        weight_bytes=12,
        input_bytes=input_bytes,
        output_bytes=8,
    )


def test_the_bytes_of_a_layer_are_those_of_inputs_outputs_and_weights() -> None:
    assert work_of(layer_cost(input_bytes=20)) == LayerWork("conv", "Conv", 100, 40)


def test_the_bytes_of_a_layer_with_an_unknown_tensor_are_unknown() -> None:
    assert work_of(layer_cost(input_bytes=None)) == LayerWork("conv", "Conv", 100, None)
