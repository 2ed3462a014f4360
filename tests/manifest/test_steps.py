"""Tests of the steps of inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.manifest.steps import Crop, InputStep, Normalize, OutputStep
from tests.support.small_manifest import IMAGE, error_of, small


def test_a_bare_word_is_a_step_without_parameters() -> None:
    step = OutputStep.model_validate("softmax")
    assert step.name == "softmax"
    assert InputStep.model_validate({"decode": None}).parameters.color == "RGB"


def test_a_size_is_a_list_of_two() -> None:
    step = InputStep.model_validate({"crop": {"size": [4, 6]}})
    assert step.parameters == Crop(size=(4, 6))


def test_one_number_is_for_all_channels() -> None:
    step = InputStep.model_validate({"normalize": {"mean": 0.5, "scale": [1.0, 2.0]}})
    assert isinstance(step.parameters, Normalize)
    assert step.parameters.mean == (0.5,)
    assert step.parameters.scale == (1.0, 2.0)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            {"crop": {"size": [4, 4]}, "cast": {"to": "int8"}},
            "a step has one name, this one has 2; begin each with '- '",
        ),
        ({"normalize": {"scale": [1, 0]}}, "scale is 0; write what to divide by, 1 for nothing"),
        ({"resize": {"size": [4]}}, "inputs[0].steps[0].resize.size"),
    ],
)
def test_a_wrong_step_is_an_error(tmp_path: Path, step: dict[str, Any], message: str) -> None:
    image = {**IMAGE, "steps": [step]}
    assert message in error_of(tmp_path, small(inputs=[image]))


def test_labels_that_are_fetched_need_a_digest(tmp_path: Path) -> None:
    step = {"top_k": {"labels": "https://x/l"}}
    output = {"name": "y", "type": "classification", "steps": [step]}
    error = error_of(tmp_path, small(outputs=[output]))
    assert "labels that are fetched need a digest; write 'sha256: …' beside them" in error
