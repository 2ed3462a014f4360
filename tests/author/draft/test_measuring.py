"""Limits of a draft, and doubts in what was measured."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pytest_mlms.author.draft.measuring import with_limits
from pytest_mlms.author.draft.parts import Draft, ModelPart
from pytest_mlms.core.errors import MlmsError

BETTER = [(0.15, 0.11), (1.0, 0.48)]


def accuracy(name: str, value: float, low: float, high: float | None = 1.0) -> dict[str, Any]:
    """Return an item of results with one quantity."""
    estimate = {"value": value, "low": low, "high": high, "lacking": ""}
    return {
        "kind": "accuracy",
        "framework": "onnxruntime",
        "versions": {},
        "machine": {"cpu": {}, "cores": {"logical": 2}},
        "estimates": {name: estimate},
    }


def measured(
    name: str, value: float, low: float, classes: int | None = 10, high: float | None = 1.0
) -> Draft:
    model = ModelPart("onnxruntime", "m.onnx", {"graph": "0"})
    draft = Draft("m", "image-classification", [model], [], [], classes=classes)
    item = accuracy(name, value, low, high)
    return with_limits(draft, [[item], [item]])


@pytest.mark.parametrize(("value", "low"), [(0.104, 0.085), (0.0, 0.0), (0.09, 0.08)])
def test_a_model_that_is_no_better_than_chance_is_doubted_above_its_limits(
    value: float, low: float
) -> None:
    draft = measured("top1", value, low)
    assert draft.doubt.startswith(f"top1 {100 * value:.2f} % is not shown to be better than chance")
    assert "(10.00 %, one of 10 classes): the labels, their order or the pre-proc" in draft.doubt
    text = replace(draft, thresholds=[("top1: {min: 0.1}", "")]).text()
    assert text.index("is not shown to be better") < text.index("thresholds:")


@pytest.mark.parametrize(("value", "low"), BETTER)
def test_a_model_that_is_better_than_chance_is_not_doubted(value: float, low: float) -> None:
    draft = measured("top1", value, low)
    assert not draft.doubt
    assert "chance" not in draft.text()


@pytest.mark.parametrize(("name", "value"), [("r2", -0.3), ("ap", 0.0), ("miou", 0.0)])
def test_other_tasks_are_doubted_at_what_a_model_scores_that_knows_nothing(
    name: str, value: float
) -> None:
    assert "better than chance (0.00 %): " in measured(name, value, value, classes=None).doubt
    assert not measured(name, 0.2, 0.0, classes=None).doubt


@pytest.mark.parametrize(
    ("name", "value", "high", "classes", "chance", "advice"),
    [
        ("top1", 0.0, 0.02, 3, "33.33 %, one of 3 classes", "number the classes by the columns"),
        ("r2", -0.3, -0.1, None, "0.00 %", "or in another unit or scale, or not of the first"),
    ],
)
def test_an_accuracy_that_is_surely_below_chance_is_refused(
    name: str, value: float, high: float, classes: int | None, chance: str, advice: str
) -> None:
    message = re.escape(f"is below chance ({chance}): the labels are in another order")
    message += f".* of other inputs; {advice}"
    with pytest.raises(MlmsError, match=message):
        measured(name, value, value, classes, high)
    assert measured(name, value, value, classes, high=None).doubt, "an interval that isn't known"
