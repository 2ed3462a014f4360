"""Static work of measured layers."""

from __future__ import annotations

from pytest_mlms.trace.layer_work import match_work, total_work
from pytest_mlms.trace.metadata import LayerWork
from pytest_mlms.trace.roofline import Work
from pytest_mlms.trace.tables import LayerRow

STATIC = [
    LayerWork("a", "Conv", 100, 7),
    LayerWork("b", "Relu", 1, 2),
    LayerWork("c", "Gemm", 50, 3),
]


def layer(name: str, kind: str) -> LayerRow:
    return LayerRow(0, name, kind, "", 1, 1.0, 1.0, None, None)


def test_layers_are_matched_by_name_where_the_names_of_convolutions_and_products_agree() -> None:
    layers = [layer("a", "aten.convolution"), layer("b", "aten.relu"), layer("c", "aten.linear")]
    assert match_work(layers, STATIC) == [Work(100, 7), Work(1, 2), Work(50, 3)]


def test_renamed_layers_are_matched_by_order_with_what_was_fused_into_them() -> None:
    layers = [layer("x", "Conv"), layer("reorder", "ReorderOutput"), layer("y", "FusedMatMul")]
    assert match_work(layers, STATIC) == [Work(101, 7), None, Work(50, 3)]


def test_an_elementwise_layer_that_was_measured_is_not_fused() -> None:
    layers = [layer("x", "Conv"), layer("y", "Relu"), layer("z", "Gemm")]
    assert match_work(layers, STATIC) == [Work(100, 7), None, Work(50, 3)]


def test_layers_of_another_number_or_kind_are_not_matched() -> None:
    layers = [layer("x", "Conv"), layer("y", "Conv"), layer("z", "InnerProduct")]
    assert match_work(layers, STATIC) == [None, None, None]


def test_a_fused_layer_with_the_name_of_its_last_part_has_the_work_of_its_product() -> None:
    static = [LayerWork("conv", "Conv2D", 100, 7), LayerWork("relu", "Relu", 0, 2)]
    assert match_work([layer("relu", "_FusedConv2D")], static) == [Work(100, 7)]


def test_unknown_operations_or_bytes_leave_the_work_unknown() -> None:
    unknown_flops = [LayerWork("conv", "Conv", None, 7)]
    unknown_bytes = [LayerWork("conv", "Conv", 100, None)]
    assert match_work([layer("conv", "Conv")], unknown_flops) == [None]
    assert match_work([layer("conv", "Conv")], unknown_bytes) == [None]


def test_a_conversion_is_no_convolution() -> None:
    static = [LayerWork("a", "Conv", 100, 7)]
    layers = [layer("to_float", "Convert"), layer("x", "Conv")]
    assert match_work(layers, static) == [None, Work(100, 7)]


def test_the_total_is_the_sum_where_all_layers_are_known() -> None:
    assert total_work(STATIC) == Work(151, 12)
    assert total_work([*STATIC, LayerWork("d", "Conv", None, 1)]) is None
    assert total_work([]) is None
