"""Answers are those of the items' own evidence, from the outputs of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.evaluate.rows import BatchAxis, BatchRows
from pytest_mlms.measure.evaluate.tasks.classification import ClassificationEvidence
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.predict.answers import Answer, RankedLabel, answers_of

TENSOR = Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})


def answer_of(values: Any, kind: str, *steps: Any) -> Answer:
    """Return the answer of one output with steps, of a model whose input is a tensor."""
    output = Output.model_validate({"name": "y", "type": kind, "steps": [*steps]})
    rows = BatchRows({"y": BatchAxis(output, [0])}, {"y": values}, 1, 1)
    return answers_of([output], Dataset("", (TENSOR,), {"x": [values]}, None), rows, {})["y"]


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_scores_are_those_of_an_items_evidence_in_any_precision(kind: type) -> None:
    values: Any = np.random.default_rng(0).normal(0, 3, (1, 1000)).astype(kind)
    output = Output.model_validate({"name": "y", "type": "classification", "steps": ["softmax"]})
    names = [str(number) for number in range(1000)]
    scores = ClassificationEvidence(values, np.array([0]), output, names).scores[0]
    ranked = answer_of(values, "classification", "softmax")
    found = [one for one in ranked if isinstance(one, RankedLabel)]
    assert [one.score for one in found] == [scores[one.index] for one in found]
    assert [one.is_probability for one in found] == [True] * 5


def test_a_class_that_the_file_of_names_has_not_is_an_error_as_of_an_item(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\nmat\n")
    named = {"top_k": {"k": 1, "labels": f"{tmp_path}/labels.txt", "sha256": "0" * 64}}
    steps = ("class_numbers", named)
    assert answer_of(np.array([1]), "classification", *steps) == (RankedLabel("mat", 1, None),)
    with pytest.raises(OutputError, match="has class 2, and the file of names 2 names; write"):
        answer_of(np.array([2]), "classification", *steps)


def test_a_mask_of_what_is_no_picture_has_the_models_own_size() -> None:
    values = np.array([[[0.2, 0.7], [0.9, 0.1]]], np.float32)
    found = answer_of(values, "mask", "threshold", {"mask": {"resize": "nearest"}})
    assert np.asarray(found).tolist() == [[0, 1], [1, 0]]
