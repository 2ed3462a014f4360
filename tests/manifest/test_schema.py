"""Tests of the schema of manifests, and of the checks within one section."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given

from pytest_mlms.manifest import Manifest, load, yaml12
from tests.support.manifest_strategies import manifests
from tests.support.project import DIGITS
from tests.support.small_manifest import IMAGE, MODEL, error_of, small, write

SCHEMA = Manifest.model_json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
GREY = {"decode": {"color": "L"}}
CROP = {"crop": {"size": [4, 4]}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"models": [{**MODEL, "weights": "w"}]},
            "sha256 is for ['graph']; write one for each of ['graph', 'weights']",
        ),
        ({"evaluate": {"batch_sizes": [1, 1]}}, "1 is there twice; keep one"),
        (
            {"inputs": [{**IMAGE, "layout": None}]},
            "an image needs a layout; write 'layout: NCHW' or 'layout: NHWC'",
        ),
        (
            {"inputs": [{**IMAGE, "type": "tensor", "layout": "NCHW", "steps": []}]},
            "layout belongs to images; write 'type: image', or leave it out",
        ),
        (
            {"inputs": [{**IMAGE, "steps": [{"color_order": {"to": "RGB"}}]}]},
            "color_order: arrays that aren't decoded are taken as RGB; leave it out, or write",
        ),
        (
            {"inputs": [{**IMAGE, "type": "tensor", "layout": None, "steps": [CROP]}]},
            "a tensor has no step 'crop'; write 'type: image', or leave it out",
        ),
        (
            {"inputs": [{**IMAGE, "steps": [{"layout": {"to": "NCHW"}}, CROP]}]},
            "step 'crop' needs the channels last; move 'layout' behind it",
        ),
        (
            {"inputs": [{**IMAGE, "steps": [CROP, "decode"]}]},
            "step 'decode' makes an image out of a file; move it to the front",
        ),
        (
            {"inputs": [{**IMAGE, "steps": ["decode", {"normalize": {"mean": [1, 2, 3, 4]}}]}]},
            "mean has 4 values for 3 channels; write one for all, or one for each",
        ),
        ({"inputs": [{**IMAGE, "shape": 3}]}, "write a list of sizes, with 'batch' for the batch"),
        ({"inputs": [{**IMAGE, "shape": ["N", 3]}]}, "write a list of sizes, with 'batch'"),
        ({"inputs": [{**IMAGE, "shape": ["batch", "batch"]}]}, "has two axes 'batch'; keep one"),
        ({"inputs": [{**IMAGE, "range": [5, 1]}]}, "range begins with 5, above its end; write"),
        (
            {"inputs": [{**IMAGE, "element_type": "uint8", "range": [0, 256]}]},
            "range 0 to 256 is wider than uint8; write numbers from 0 to 255",
        ),
        (
            {"inputs": [{**IMAGE, "element_type": "int64", "range": [0, 2**63]}]},
            "is wider than int64; write numbers from -9.22337e+18 to 9.22337e+18",
        ),
        (
            {"inputs": [{**IMAGE, "element_type": "float64", "range": [-1e308, 1e308]}]},
            "range -1e+308 to 1e+308 is wider than float64; write",
        ),
        (
            {"inputs": [{**IMAGE, "steps": [{"resize": {"size": [10**6, 10**6]}}]}]},
            "1000000 x 1000000 has more than 178,956,970 pixels; write [height, width] of a",
        ),
        (
            {"inputs": [{**IMAGE, "steps": [{"normalize": {"scale": 1e-60}}]}]},
            "mean or scale is out of float32's range; write numbers of 1e-30 to 1e+30",
        ),
        (
            {"inputs": [{**IMAGE, "steps": [{"normalize": {"mean": -1e60}}]}]},
            "mean or scale is out of float32's range",
        ),
        (
            {"inputs": [{**IMAGE, "steps": [GREY, {"normalize": {"scale": [1, 2, 3]}}]}]},
            "scale has 3 values for 1 channel; write one for all, or one for each",
        ),
    ],
)
def test_a_section_that_contradicts_itself_is_an_error(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    assert message in error_of(tmp_path, small(**changes))


def test_top_k_is_the_last_step_of_a_classification(tmp_path: Path) -> None:
    steps = [{"top_k": {}}, "softmax"]
    output = {"name": "y", "type": "classification", "steps": steps}
    assert "move it to the end" in error_of(tmp_path, small(outputs=[output]))


def test_the_shape_of_an_output_names_the_axis_of_the_batch(tmp_path: Path) -> None:
    output = {"name": "y", "type": "tensor", "shape": [2, 3]}
    message = "has the word batch for the axis of the batch; write it, or 'batch: none'"
    assert message in error_of(tmp_path, small(outputs=[output]))
    output["shape"] = [2, "batch"]
    loaded = load(write(tmp_path, small(outputs=[output])))
    assert loaded.manifest.outputs[0].batch_axis == 1


def test_an_output_without_a_batch_takes_one_input_a_call(tmp_path: Path) -> None:
    output = {"name": "y", "type": "tensor", "shape": [2, 3], "batch": "none"}
    one = {"outputs": [output], "evaluate": {"batch_sizes": [1]}}
    assert load(write(tmp_path, small(**one))).manifest.outputs[0].batch_axis is None
    several = {"outputs": [output], "evaluate": {"batch_sizes": [1, 8]}}
    message = "evaluate.batch_sizes: an output has 'batch: none'; write batch_sizes: [1]"
    assert message.partition(": ")[2] in error_of(tmp_path, small(**several))
    output["shape"] = ["batch", 3]
    assert "has no axis batch; leave one of them out" in error_of(tmp_path, small(**one))


def test_the_background_of_classes_is_dropped_first(tmp_path: Path) -> None:
    output = {"name": "y", "type": "classification", "steps": ["softmax", "drop_background"]}
    message = "step 'drop_background' takes a column of the output; put it first"
    assert message in error_of(tmp_path, small(outputs=[output]))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["softmax", {"dequantize": {"scale": 0.1}}], "takes the output as it is; put it first"),
        (["sigmoid"], "write 'threshold' behind it, or 'softmax' for a column for each class"),
        (["threshold", "sigmoid"], "no other steps than dequantize, sigmoid, threshold, top_k, in"),
        (["softmax", "threshold"], "step 'threshold' takes one score of two classes; write no"),
        (["class_numbers", "softmax"], "step 'class_numbers' takes no scores; leave out the other"),
        (["class_numbers", "threshold"], "step 'class_numbers' takes no scores"),
        (["sigmoid", {"threshold": {"above": 2}}], "a probability is from 0 to 1; write 'above'"),
    ],
)
def test_steps_of_classes_go_together(tmp_path: Path, steps: Any, message: str) -> None:
    output = {"name": "y", "type": "classification", "steps": steps}
    assert message in error_of(tmp_path, small(outputs=[output]))


@pytest.mark.parametrize("kind", ["boxes", "tokens", "text"])
def test_outputs_of_other_types_have_no_numbers_of_classes(tmp_path: Path, kind: str) -> None:
    for step in ("class_numbers", {"dequantize": {"scale": 0.1}}):
        if kind == "boxes" and step != "class_numbers":
            continue
        output = {"name": "y", "type": kind, "steps": [step]}
        assert "no step" in error_of(tmp_path, small(outputs=[output]))


def test_a_tensor_has_no_top_k(tmp_path: Path) -> None:
    output = {"name": "y", "type": "tensor", "steps": ["top_k"]}
    assert "type tensor has no step 'top_k'" in error_of(tmp_path, small(outputs=[output]))


def test_the_json_schema_accepts_the_shipped_manifest() -> None:
    VALIDATOR.validate(yaml12.parse((DIGITS / "digits.yaml").read_text()).value)


def test_the_json_schema_rejects_an_unknown_key() -> None:
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(small(thresholdz={}))


@given(manifests())
def test_a_valid_manifest_comes_back_from_its_own_dump(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    VALIDATOR.validate(content)
    first = load(write(tmp_path, json.dumps(content, ensure_ascii=False))).manifest
    dumped = first.model_dump(mode="json", exclude_none=True)
    again = load(write(tmp_path, json.dumps(dumped, ensure_ascii=False))).manifest
    assert again == first
