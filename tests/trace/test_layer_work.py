"""Static work of measured layers."""

from __future__ import annotations

from pytest_mlms.trace.layer_work import match_work, total_work
from pytest_mlms.trace.metadata import LayerWork
from pytest_mlms.trace.roofline import Work
from pytest_mlms.trace.tables import LayerRow

CONV = LayerWork("a", "Conv", 100, 7)
RELU = LayerWork("b", "Relu", 1, 2)
PRODUCT = LayerWork("c", "Gemm", 50, 3)
STATIC = [CONV, RELU, PRODUCT]


def measured(**types: str) -> list[LayerRow]:
    """Layers by their names, with the type of each."""
    rows = []
    for name, kind in types.items():
        rows.append(LayerRow(0, name, kind, "", 1, 1.0, 1.0, None, None))
    return rows


def test_layers_are_matched_by_name_where_those_of_convolutions_and_products_agree() -> None:
    layers = measured(a="aten.convolution", b="aten.relu", c="aten.linear")
    assert match_work(layers, STATIC) == [Work(100, 7), Work(1, 2), Work(50, 3)]


def test_renamed_layers_are_matched_by_order_with_what_was_fused_into_them() -> None:
    layers = measured(x="Conv", reorder="ReorderOutput", y="FusedMatMul")
    assert match_work(layers, STATIC) == [Work(101, 7), None, Work(50, 3)]


def test_an_elementwise_layer_that_was_measured_is_not_fused() -> None:
    layers = measured(x="Conv", y="Relu", z="Gemm")
    assert match_work(layers, STATIC) == [Work(100, 7), None, Work(50, 3)]


def test_layers_of_another_kind_are_not_matched() -> None:
    layers = measured(x="Conv", y="Conv", z="InnerProduct")
    assert match_work(layers, STATIC) == [None, None, None]


def test_a_fused_layer_with_the_name_of_its_last_part_has_the_work_of_its_product() -> None:
    static = [CONV, LayerWork("relu", "Relu", 0, 2)]
    layers = measured(relu="_FusedConv2D")
    assert match_work(layers, static) == [Work(100, 7)]


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
