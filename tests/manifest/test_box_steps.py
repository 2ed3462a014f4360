"""Outputs that objects are read from: their types, and the parameters of their steps."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.schema import Output
from pytest_mlms.manifest.validation import box_output_errors
from tests.support.project import ROOT

COLUMNS = ["x1", "y1", "x2", "y2", "score", "class"]


def output(kind: str, *steps: Any) -> Output:
    return Output.model_validate({"name": kind, "type": kind, "steps": list(steps)})


def errors_of(*outputs: Output) -> list[Any]:
    return list(box_output_errors(outputs))


def test_the_examples_of_the_documentation_are_valid() -> None:
    text = (ROOT / "docs" / "detection.md").read_text(encoding="utf-8")
    examples = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(examples) == 5
    for example in examples:
        document = yaml12.parse(example)
        assert document.errors == []
        outputs = [Output.model_validate(value) for value in document.value["outputs"]]
        assert errors_of(*outputs) == []


def test_quantised_boxes_are_dequantized_before_they_are_read() -> None:
    quantised = {"dequantize": {"scale": 0.1}}
    assert errors_of(output("boxes", quantised, "yolo"), output("scores", quantised)) == []
    for steps in (["yolo", quantised], [quantised, {"nms": {}}, "yolo"]):
        (((*_, place), text),) = errors_of(output("boxes", *steps), output("scores"))
        assert (place, text.endswith("reads the model's output; move it to the front")) == (
            len(steps) - 1,
            True,
        )


WRONG = {
    "no box": ({"columns": {"names": ["x1", "y1", "x2", "score"]}}, r"\['x1', 'x2', 'y1'\] are no"),
    "twice": ({"columns": {"names": [*COLUMNS, "score"]}}, "column 'score' is there twice"),
    "names and ids": ({"classes": {"names": ["a"], "ids": [1]}}, "classes says names and ids"),
    "nothing": ({"classes": {}}, "classes says nothing; write one of names, labels and ids"),
    "fetched": ({"classes": {"labels": "https://x/y"}}, "labels that are fetched need a digest"),
    "overlap": ({"nms": {"iou": 45.0}}, "less than or equal to 1"),
    "most": ({"nms": {"most": 0}}, "greater than or equal to 1"),
    "head": ({"yolo": {"head": "v3"}}, "'v5' or 'v8'"),
    "layers": ({"anchors": {"layers": []}}, "at least 1 item"),
    "sizes": ({"anchors": {"layers": [{"grid": [2, 2], "sizes": [[0, 1]]}]}}, "greater than 0"),
    "scale": ({"anchors": {"layers": [], "scale": 0}}, "greater than 0"),
    "units": ({"boxes": {"units": "percent"}}, "'pixels' or 'relative'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_parameters_are_errors(name: str) -> None:
    step, message = WRONG[name]
    with pytest.raises(ValidationError, match=message):
        output("boxes", step)


def test_boxes_with_scores_are_complete() -> None:
    assert errors_of(output("boxes", "yolo", {"nms": {}})) == []
    assert errors_of(output("boxes"), output("scores", "sigmoid")) == []
    assert errors_of(output("boxes", {"columns": {"names": COLUMNS}})) == []
    assert errors_of(output("classification")) == []


INCOMPLETE: dict[str, tuple[list[Output], Any, str]] = {
    "no scores": ([output("boxes")], ("outputs", 0), "the boxes have no scores; add an output"),
    "no score column": (
        [output("boxes", {"columns": {"names": COLUMNS[:4]}})],
        ("outputs", 0),
        "the boxes have no scores",
    ),
    "no boxes": ([output("scores")], ("outputs",), "there are scores without boxes"),
    "two": (
        [output("boxes", "yolo"), output("boxes", "yolo")],
        ("outputs", 1),
        "there are two outputs of type boxes; keep one",
    ),
    "late reader": (
        [output("boxes", {"nms": {}}, "yolo")],
        ("outputs", 0, "steps", 1),
        "step 'yolo' reads the model's output; move it to the front",
    ),
    "foreign step": (
        [output("boxes", "yolo"), output("scores", {"nms": {}})],
        ("outputs", 1, "steps", 0),
        "type scores has no step 'nms'; write some of dequantize, sigmoid",
    ),
    "no steps": (
        [output("boxes", "yolo"), output("count", "sigmoid")],
        ("outputs", 1, "steps", 0),
        "type count has no step 'sigmoid'; it has none",
    ),
}


@pytest.mark.parametrize("name", INCOMPLETE)
def test_outputs_that_do_not_fit_together_are_errors(name: str) -> None:
    outputs, path, text = INCOMPLETE[name]
    found = errors_of(*outputs)
    assert found[0][0] == path
    assert found[0][1].startswith(text)
