"""Rooflines, and the work of measured layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from mlms_predictors import Layer, Load, onnxruntime

from pytest_mlms.measure.structure.cost import LayerCost
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from pytest_mlms.measure.trace.records import LayerWork, Peaks
from pytest_mlms.measure.trace.roofline import (
    Work,
    _kind,
    match_work,
    roofline_point,
    total_work,
    work_of,
)
from pytest_mlms.measure.trace.tables import LayerRow
from tests.support.onnx_models import ModelBuilder

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


CONV = LayerWork("a", "Conv", 100, 7, ("x",), ("ay",), (1, 8, 4, 4))
RELU = LayerWork("b", "Relu", 1, 2, ("ay",), ("by",), (1, 8, 4, 4))
PRODUCT = LayerWork("c", "Gemm", 50, 3, ("by",), ("cy",), (1, 10))
STATIC = [CONV, RELU, PRODUCT]

# Two convolutions of one input, and the product of what they give.
NARROW = LayerWork("narrow", "Conv", 100, 7, ("x",), ("n",), (1, 8, 4, 4))
WIDE = LayerWork("wide", "Conv", 900, 9, ("x",), ("w",), (1, 8, 4, 4))
BOTH = LayerWork("both", "MatMul", 50, 3, ("n", "w"), ("y",), (1, 8, 4, 4))
BRANCHES = [NARROW, WIDE, BOTH]


def measured(shape: str = "", **types: str) -> list[LayerRow]:
    """Layers by their names, with the type of each."""
    rows = []
    for index, (name, kind) in enumerate(types.items()):
        rows.append(LayerRow(index, name, kind, shape, 1, 1.0, 1.0, None, None))
    return rows


def test_layers_are_matched_by_name() -> None:
    layers = measured(a="aten.convolution", b="aten.relu", c="aten.linear")
    assert match_work(layers, STATIC) == [Work(100, 7), Work(1, 2), Work(50, 3)]


def test_renamed_layers_are_matched_by_order_with_what_was_fused_into_them() -> None:
    layers = measured(x="Conv", reorder="ReorderOutput", y="FusedMatMul")
    assert match_work(layers, STATIC) == [Work(101, 7), None, Work(50, 3)]


def test_an_elementwise_layer_that_was_measured_is_not_fused() -> None:
    layers = measured(x="Conv", b="Relu", z="Gemm")
    assert match_work(layers, STATIC) == [Work(100, 7), Work(1, 2), Work(50, 3)]


def test_a_layer_that_others_read_too_is_not_fused() -> None:
    skip = LayerWork("skip", "Add", 0, 2, ("ay", "by"), ("s",), None)
    assert match_work(measured(x="Conv"), [CONV, RELU, skip]) == [Work(100, 7)]


@pytest.mark.parametrize(
    "name", ["by", "by_nchwc", "by_nchwc_token_3", "a_token_1", "fused a", "a/GeluFusion/"]
)
def test_a_fused_layer_may_have_the_name_of_a_part_or_of_what_it_writes(name: str) -> None:
    layers = measured(**{name: "Conv", "other": "Conv"})
    assert match_work(layers, STATIC) == [Work(101, 7), None]


def test_renamed_layers_of_branches_have_no_known_order() -> None:
    layers = measured(p="Conv", q="Conv", r="MatMul")
    assert match_work(layers, BRANCHES) == [None, None, Work(50, 3)]


def test_layers_of_branches_are_matched_by_what_they_write_in_any_order() -> None:
    layers = measured(w_nchwc="Conv", n_nchwc="Conv", both="MatMul")
    assert match_work(layers, BRANCHES) == [Work(900, 9), Work(100, 7), Work(50, 3)]


def test_layers_of_branches_are_matched_by_a_shape_that_one_of_them_has() -> None:
    larger = LayerWork("larger", "Conv", 400, 8, ("x",), ("l",), (1, 20, 4, 4))
    padded = LayerRow(0, "p", "Conv", "1 x 32 x 4 x 4", 1, 1.0, 1.0, None, None)
    plain = LayerRow(1, "q", "Conv", "1 x 8 x 4 x 4", 1, 1.0, 1.0, None, None)
    assert match_work([padded, plain], [NARROW, larger]) == [Work(400, 8), Work(100, 7)]
    assert match_work([padded, plain], [NARROW, WIDE]) == [None, None]
    assert match_work([padded], [NARROW, larger]) == [None]  # it may be either


def test_layers_of_alike_branches_have_the_same_work() -> None:
    static = [NARROW, LayerWork("twin", "Conv", 100, 7, ("x",), ("t",), (1, 8, 4, 4))]
    layers = measured("1 x 8 x 4 x 4", p="Conv", q="Conv")
    assert match_work(layers, static) == [Work(100, 7), Work(100, 7)]


def test_layers_of_another_kind_are_not_matched() -> None:
    layers = measured(x="Conv", y="Conv", z="InnerProduct")
    assert match_work(layers, STATIC) == [None, None, Work(50, 3)]


def test_a_fused_layer_with_the_name_of_its_last_part_has_the_work_of_its_product() -> None:
    layers = measured(b="_FusedConv2D")
    assert match_work(layers, [CONV, RELU]) == [Work(101, 7)]


def test_unknown_operations_leave_the_work_unknown() -> None:
    static = [LayerWork("conv", "Conv", None, 7)]
    assert match_work(measured(conv="Conv"), static) == [None]


def test_unknown_bytes_leave_the_work_unknown() -> None:
    static = [LayerWork("conv", "Conv", 100, None)]
    assert match_work(measured(conv="Conv"), static) == [None]


def test_a_conversion_is_no_convolution() -> None:
    layers = measured(to_float="Convert", x="Conv")
    assert match_work(layers, [CONV]) == [None, Work(100, 7)]


def test_the_total_is_the_sum_of_all_layers() -> None:
    assert total_work(STATIC) == Work(151, 12)


def test_the_total_is_unknown_where_a_layer_is_or_where_there_is_none() -> None:
    unknown = LayerWork("d", "Conv", None, 1)
    assert total_work([*STATIC, unknown]) is None
    assert total_work([]) is None


SIDE = 16
"""Of the images of the fire modules."""


def write_fire_modules(folder: Path) -> Path:
    """Write fire modules (SqueezeNet); what a convolution writes is named by its operations."""
    model = ModelBuilder()
    model.add_input("x", 1, 16, SIDE, SIDE)
    last = "x"
    for block in range(3):
        squeezed = add_convolution(model, last, 32 if block else 16, 20, 1)
        narrow = add_convolution(model, squeezed, 20, 16, 1)
        wide = add_convolution(model, squeezed, 20, 16, 3)
        last = f"both{block}"
        model.add("Concat", f"{narrow} {wide}", last, axis=1)
    model.add("Identity", last, "y")
    model.add_output("y")
    path = folder / "fire.onnx"
    onnx.save(model.build(), path)
    return path


def add_convolution(
    model: ModelBuilder, source: str, channels: int, filters: int, kernel: int
) -> str:
    """Add a convolution with its Relu; return what it writes, whose name has the operations."""
    flops = 2 * filters * SIDE * SIDE * channels * kernel * kernel
    name = f"{source}_{flops}"
    model.add_weight(f"{name}_weight", filters, channels, kernel, kernel)
    model.add(
        "Conv",
        f"{source} {name}_weight",
        f"{name}_sum",
        pads=[kernel // 2] * 4,
        name=f"{name}_node",
    )
    model.add("Relu", f"{name}_sum", name)
    return name


def row_of(index: int, layer: Layer) -> LayerRow:
    shape = " x ".join(map(str, layer.shape or ()))
    return LayerRow(index, layer.name, layer.type, shape, 1, 1.0, 1.0, None, None)


@pytest.mark.parametrize("optimization", ["all", "extended", "basic", "none"])
def test_each_convolution_that_onnx_runtime_reordered_has_its_own_work(
    tmp_path: Path, optimization: str
) -> None:
    path = write_fire_modules(tmp_path)
    options = {"optimization": optimization}
    loaded = onnxruntime.load(Load({"graph": str(path)}, "cpu", 1, options, False))
    image = np.zeros((1, 16, SIDE, SIDE), np.float32)
    profile = onnxruntime.layers(loaded, {"x": image})
    rows = [row_of(index, layer) for index, layer in enumerate(profile.layers)]
    static = [work_of(layer) for layer in describe_onnx(path).layers]
    found = 0
    for row, work in zip(rows, match_work(rows, static), strict=True):
        if "Conv" in row.type:
            assert work is not None, row.name
            assert f"_{work.flops}_n" in row.name  # of _node or _nchwc
            found += 1
    assert found == 9


@pytest.mark.parametrize(
    ("types", "kind"),
    [
        (
            "Gemm MatMul QLinearMatMul Linear aten.linear.default Dense FULLY_CONNECTED Times",
            "product",
        ),
        ("TransposeTimes InnerProduct aten::addmm quantized::linear", "product"),
        ("Conv QLinearConv CONV_2D aten.conv2d.default", "conv"),
        ("ResizeBilinear aten.upsample_bilinear2d.vec aten.upsample_linear1d.vec", ""),
        ("QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearAdd ElementTimes", ""),
        ("SparseToDense DenseToSparse ConvertLike", ""),
    ],
)
def test_convolutions_and_products_are_known_by_their_types(types: str, kind: str) -> None:
    assert {name: _kind(name) for name in types.split()} == dict.fromkeys(types.split(), kind)
