"""Tests of the files of predictions, and of the text of the worst inputs."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.core.records import Place
from pytest_mlms.keep.results.line import PredictionsRecord
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.evaluate.tasks.classification import ClassificationEvidence
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.show.report.predictions import (
    keep_predictions,
    list_worst_inputs,
    predictions_of,
)
from tests.support.scored import evidence_of

OUTPUT = Output.model_validate({"name": "y", "type": "classification"})
PIXEL = Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})
VALUES = np.array([[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]])
FILES = ["cats/1.png", "dogs/2.png"]


def evidence(names: list[str] | None = None) -> ClassificationEvidence:
    return ClassificationEvidence(VALUES, np.array([1, 2]), OUTPUT, names or ["a", "b", "c"])


def dataset(files: list[str] | None = None) -> Dataset:
    return Dataset("m.yaml:1: two.npz", (PIXEL,), {"x": [np.zeros(1)] * 2}, None, files)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder("a.yaml::test[x]", tmp_path, Place(Path("a.yaml"), 1))


def rows_of(recorder: Recorder) -> list[list[str]]:
    with (recorder.folder / "predictions.csv").open() as file:
        return list(csv.reader(file))


def test_predictions_are_kept_as_arrays_and_as_a_table(recorder: Recorder) -> None:
    keep_predictions(recorder, evidence())
    assert np.load(recorder.folder / "probabilities.npz")["label"].tolist() == [1, 2]
    assert rows_of(recorder) == [
        ["input", "label", "class_1", "probability_1"],
        ["0", "b", "b", "0.7"],
        ["1", "c", "a", "0.6"],
    ]


def test_predictions_name_the_files_of_their_inputs(recorder: Recorder) -> None:
    keep_predictions(recorder, evidence(), FILES)
    header, first, second = rows_of(recorder)
    assert header[:3] == ["input", "file", "label"]
    assert first[:3] == ["0", "cats/1.png", "b"]
    assert second[:3] == ["1", "dogs/2.png", "c"]


def test_the_digest_of_the_answers_is_that_of_the_best_classes(recorder: Recorder) -> None:
    keep_predictions(recorder, evidence())
    record = recorder.recording().as_fields()["predictions"]
    digest = hashlib.sha256(b"[1,0]").hexdigest()
    assert record == {"sha256": digest, "inputs": 2, "right": 1, "quantity": "top1"}
    noise = ClassificationEvidence(VALUES + 1e-7, np.array([1, 2]), OUTPUT, ["a", "b", "c"])
    assert predictions_of(noise).sha256 == digest
    other = ClassificationEvidence(VALUES[::-1], np.array([1, 2]), OUTPUT, ["a", "b", "c"])
    assert predictions_of(other).sha256 != digest


def test_answers_that_are_numbers_have_no_digest() -> None:
    numbers = evidence_of("regression", np.array([7.0, 7.0]), [[1.0], [2.0]])
    assert predictions_of(numbers) == PredictionsRecord(sha256=None, inputs=2)


def test_the_worst_inputs_are_those_that_are_wrong() -> None:
    found = "  worst inputs:\n    row 1: label c, class_1 a, probability_1 0.6"
    assert list_worst_inputs(evidence(), dataset()) == found
    assert "    dogs/2.png: label c" in list_worst_inputs(evidence(), dataset(FILES))


def test_long_labels_of_several_lines_are_shown_in_short() -> None:
    text = list_worst_inputs(evidence(["a", "b", "long\n" * 100]), dataset())
    assert len(text.splitlines()) == 2
    assert len(text) < 150
