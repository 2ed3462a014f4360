"""Limits of a draft, and doubts in what was measured."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pytest_mlms.author.draft.measuring import with_limits
from pytest_mlms.author.draft.parts import Draft, InputPart, ModelPart
from pytest_mlms.core.errors import MlmsError

OF_GUESSES = "at sizes that are guesses; measure it at yours: mlms init …"
OF_A_PAST = (
    "both the positions of a call and those before it are guesses, a pair that nobody may have; "
    "measure it at yours: mlms init …"
)
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


def timed() -> dict[str, Any]:
    """Return an item of results with a latency."""
    item = accuracy("latency_p50", 0.002, 0.0019)
    return {**item, "kind": "performance", "batch_size": 1}


@pytest.mark.parametrize(
    ("guesses", "comment"),
    [
        ({"x": ""}, ""),
        ({"x": "--shape x=batch,16"}, f"{OF_GUESSES} --shape x=batch,16"),
        (
            {"past.0": "--shape past.0=1", "ids": "--shape ids=2", "past.1": "--shape past.1=1"},
            f"{OF_A_PAST} --shape ids=2 --shape past.0=1 --shape past.1=1",
        ),
        (
            {f"x{number}": f"--shape x{number}=1" for number in range(5)},
            f"{OF_GUESSES} --shape x0=1 --shape x1=1 --shape x2=1 and 2 more",
        ),
    ],
)
def test_a_limit_on_latency_says_which_sizes_are_guesses(
    guesses: dict[str, str], comment: str
) -> None:
    inputs = [InputPart(name, "tensor", "float32", guess=text) for name, text in guesses.items()]
    model = ModelPart("onnxruntime", "m.onnx", {"graph": "0"})
    draft = with_limits(Draft("m", "inference", [model], inputs, []), [[timed()], [timed()]])
    assert draft.thresholds[0] == ("latency_p50:", comment)


@pytest.mark.parametrize(("classes", "second"), [(2, "auc"), (3, "f1_macro"), (None, "f1_macro")])
def test_scores_of_two_classes_are_limited_at_any_threshold(
    classes: int | None, second: str
) -> None:
    item = accuracy("top1", 0.9, 0.85)
    estimates = item["estimates"]
    for name in ("f1_macro", "precision", "auc"):
        estimates[name] = estimates["top1"]
    model = ModelPart("onnxruntime", "m.onnx", {"graph": "0"})
    draft = Draft("m", "classification", [model], [], [], classes=classes)
    limits = [line for line, _ in with_limits(draft, [[item], [item]]).thresholds]
    assert [line.partition(":")[0] for line in limits] == ["top1", second]
