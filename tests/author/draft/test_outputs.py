"""Guesses at the outputs of models that find objects in pictures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.author.draft.opening import Trial
from pytest_mlms.author.draft.outputs import guess_objects
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.manifest.yaml12 import parse

CATEGORIES = ["cat", "dog"]


def guess(names: Any = (), scale: float = 300.0, **shapes: Any) -> list[Any]:
    """Return the type and the steps of each output, which a manifest accepts."""
    tensors = [Tensor(name, "float32", ()) for name in shapes]
    pair = []
    for count in (2, 3):
        generator = np.random.default_rng(0)
        pair.append(
            {name: generator.uniform(0, scale, (count, *shape)) for name, shape in shapes.items()}
        )
    parts = guess_objects(tensors, Trial(2, 3, pair[0], pair[1]), CATEGORIES, names)
    for part in parts:
        steps = [parse(f"- {step}").value[0] for step in part.steps]
        Output.model_validate({"name": part.name, "type": part.type, "steps": steps})
    return [(part.type, list(part.steps)) for part in parts]


@pytest.mark.parametrize(
    ("shape", "scale", "step"),
    [
        ((6, 2100), 300, "yolo"),
        ((6, 2100), 1, "yolo: {units: relative}"),
        ((2100, 7), 300, "yolo: {head: v5}"),
        ((300, 6), 300, "columns: {names: [x1, y1, x2, y2, score, class]}"),
        ((1, 100, 7), 1, "columns: {names: [image, class, score, x1, y1, x2, y2], units: relative}"),
    ],
)  # fmt: skip
def test_one_output_tells_its_form_by_its_shape(shape: Any, scale: float, step: str) -> None:
    ((kind, steps),) = guess(scale=scale, y=shape)
    assert (kind, steps[0]) == ("boxes", step)


def test_separate_outputs_have_types_by_their_names_and_shapes() -> None:
    found = guess(
        scale=1,
        detection_boxes=(100, 4),
        detection_classes=(100,),
        detection_scores=(100,),
        num_detections=(),
    )
    assert found[0] == ("boxes", ["boxes: {format: yxyx, units: relative}"])
    assert [kind for kind, _ in found[1:]] == ["classes", "scores", "count"]


def test_classes_are_put_to_categories_by_name_or_number() -> None:
    assert not any("classes" in step for step in guess(y=(6, 2100))[0][1])
    assert guess(y=(7, 2100))[0][1][-1] == "classes: {names: [null, cat, dog]}"
    named = guess(["bird", "Dog", "ox", "cat"], y=(8, 2100))
    assert named[0][1][-1] == "classes: {names: [null, dog, null, cat]}"
    with pytest.raises(MlmsError, match="has 4 classes, and the COCO file 2 categories .cat, dog."):
        guess(y=(8, 2100))


def test_other_outputs_are_refused_with_their_shapes() -> None:
    with pytest.raises(MlmsError, match=r"no boxes of a form that is known here: y \(10,\)"):
        guess(y=(10,))
