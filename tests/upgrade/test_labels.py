"""Short texts on an upgrade."""

from __future__ import annotations

import math

import pytest

from pytest_mlms.records import InputGroup, Verdict
from pytest_mlms.upgrade.labels import (
    format_change,
    group_lines,
    percent,
    point_label,
    sides_label,
)
from tests.support.upgrades import alike, find, result_of

LATENCY = find(result_of(alike(0.0)).comparisons, "latency")
KNOWN = LATENCY.but(ratio=1.0794, low=1.0712, high=1.0881)


def test_the_framework_is_left_out_where_the_stack_is_named_after_it() -> None:
    label = sides_label("onnxruntime==1.31", "onnxruntime==1.30", "onnxruntime")
    assert label == "onnxruntime==1.31 (B) against onnxruntime==1.30 (A)"
    assert sides_label("new", "old", "mxnet") == "new (B) against old (A), mxnet"


def test_a_point_is_the_device_the_batch_size_and_the_scenario() -> None:
    assert point_label("cuda:0", 8, None) == "cuda:0-b8"
    assert point_label("cpu", 1, "server") == "cpu-b1-server"


@pytest.mark.parametrize(
    ("form", "text"), [(".3g", "12.3 %"), (".0f", "12 %"), ("+.1f", "+12.3 %")]
)
def test_a_share_is_shown_in_percent(form: str, text: str) -> None:
    assert percent(0.12345, form) == text


def test_a_change_is_a_ratio_with_its_interval() -> None:
    assert format_change(KNOWN) == "×1.079 (1.071 to 1.088)"
    assert format_change(KNOWN, "_") == "×1.079 (1.071_to_1.088)"


def test_an_interval_may_be_unbounded_and_is_never_below_zero() -> None:
    wide = KNOWN.but(low=-math.inf, high=math.inf)
    assert format_change(wide) == "×1.079 (0.000 to unbounded)"


def test_a_change_without_a_ratio_is_a_dash() -> None:
    assert format_change(KNOWN.but(ratio=math.nan)) == "-"


def test_a_change_of_accuracy_is_a_difference_and_that_of_outputs_a_multiple() -> None:
    accuracy = KNOWN.but(quantity="top1", of="inputs", ratio=-0.0017, low=-0.0083, high=0.0099)
    assert format_change(accuracy) == "-0.17 (-0.83 to +0.99 %)"
    assert format_change(accuracy, "_") == "-0.17 (-0.83_to_+0.99_%)"
    outputs = KNOWN.but(quantity="agreement", of="outputs", ratio=646.4)
    assert format_change(outputs) == "up to 646 times what is allowed"


def test_groups_of_inputs_have_a_line_each_with_their_change_in_an_upgrade() -> None:
    alone = InputGroup("16", 0.4, 164e-6, 160e-6, 168e-6, inputs=26)
    compared = InputGroup("512", 0.05, 9e-3, 2.9, 3.1, 40, 3e-3, 3.0, Verdict.REGRESSED)
    assert group_lines([alone, compared]) == [
        "inputs of shape 16 (40 %): 164 µs, of 26 inputs",
        "inputs of shape 512 (5 %): A 3.00 ms, B 9.00 ms, ×3.000 (2.900 to 3.100)",
    ]
