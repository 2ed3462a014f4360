"""Short texts on an upgrade."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_mlms.core.records import InputGroup, Verdict
from pytest_mlms.decide.upgrade.labels import (
    format_change,
    group_lines,
    is_told,
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


def test_an_end_with_dozens_of_digits_is_not_written_out() -> None:
    assert format_change(KNOWN.but(high=1e29), "_") == "×1.079 (1.071_to_over_1000)"


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


IDLE = {"quantity": "idle_cpu", "tolerance": 0.5}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ratio": 1.04, "b": 1.04}, True),  # beyond its tolerance
        ({"ratio": 1.02, "b": 1.02}, False),
        ({"ratio": 1.2, "b": 1.2, "tolerance": 0.5}, False),
        ({"ratio": 1.3, "b": 1.3, "tolerance": 0.5}, True),  # a quarter worse
        ({"ratio": 1.01, "b": 1.75}, True),  # as measured, before anything is added to both
        ({"ratio": 1.02, "a": 1e-3, "b": 2e-3, **IDLE}, False),  # of next to nothing
        ({"ratio": 1.32, "a": 1e-3, "b": 8e-3, **IDLE}, True),
        ({"ratio": 1.2, "a": 0.03, "b": 0.04, **IDLE}, True),
        ({"ratio": 0.5, "b": 0.5}, False),  # better
        ({"ratio": 0.5, "b": 0.5, "quantity": "throughput"}, True),
        ({"ratio": math.nan, "b": 2.0}, False),
        ({"ratio": 1.2, "b": 1.2, "high": math.inf}, False),  # a single round
        ({"ratio": 1.04, "b": 1.04, "verdict": Verdict.REGRESSED}, False),
        ({"ratio": 1.04, "b": 1.04, "of": "calls"}, False),
        ({"ratio": -0.05, "of": "inputs", "quantity": "top1"}, True),
        ({"ratio": -0.01, "of": "inputs", "quantity": "top1"}, False),
        ({"ratio": 5.0, "of": "outputs", "quantity": "agreement"}, False),
    ],
)
def test_a_quantity_that_looks_worse_is_told(fields: dict[str, Any], expected: bool) -> None:
    plain = LATENCY.but(a=1.0, b=1.0, tolerance=0.03, verdict=Verdict.INCONCLUSIVE)
    assert is_told(plain.but(**fields)) is expected
