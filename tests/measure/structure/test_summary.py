"""Summary of a model's static cost."""

from __future__ import annotations

from pytest_mlms.core.serialization import from_plain, to_plain
from pytest_mlms.measure.structure.onnx_graph import describe_onnx
from pytest_mlms.measure.structure.summary import CostSummary, summarize_cost
from tests.support.project import DIGITS


def test_the_sums_of_types_are_those_of_the_model() -> None:
    cost = describe_onnx(DIGITS / "digits_cnn.onnx", 4)
    summary = summarize_cost(cost)
    assert summary.layers == len(cost.layers) == sum(each.layers for each in summary.types)
    assert summary.parameters == cost.parameters == sum(each.parameters for each in summary.types)
    assert summary.flops == cost.flops == sum(each.flops for each in summary.types) > 0
    assert summary.weight_bytes == sum(each.weight_bytes for each in summary.types)
    assert summary.activation_bytes == sum(each.output_bytes for each in summary.types)
    assert summary.peak_bytes == cost.peak_bytes


def test_the_costliest_type_comes_first() -> None:
    types = summarize_cost(describe_onnx(DIGITS / "digits_cnn.onnx", 1)).types
    assert types[0].type == "Conv"
    assert [each.flops for each in types] == sorted((each.flops for each in types), reverse=True)


def test_a_summary_is_read_back_from_json() -> None:
    summary = summarize_cost(describe_onnx(DIGITS / "digits_cnn.onnx", 1))
    assert from_plain(CostSummary, to_plain(summary)) == summary
