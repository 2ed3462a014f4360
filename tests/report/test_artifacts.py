"""Tests of the artifacts of items."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.recorder import Recorder
from pytest_mlms.records import Place
from pytest_mlms.report.artifacts import (
    Predictions,
    keep_arrays,
    keep_predictions,
    load_latencies,
)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder("a.yaml::test[x]", tmp_path, Place(Path("a.yaml"), 1))


def predictions(scores: Any, ranking: Any, **fields: Any) -> Predictions:
    labels = np.array([1, 2])
    return Predictions(scores, ranking, labels, ["a", "b", "c"], k=2, **fields)


def rows_of(recorder: Recorder) -> list[list[str]]:
    with (recorder.folder / "predictions.csv").open() as file:
        return list(csv.reader(file))


def test_predictions_are_kept_as_scores_and_as_a_table(recorder: Recorder) -> None:
    scores = np.array([[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]])
    keep_predictions(recorder, predictions(scores, scores))
    kept = np.load(recorder.folder / "probabilities.npz")
    assert kept["probability"].dtype == np.float32
    assert kept["label"].tolist() == [1, 2]
    assert rows_of(recorder) == [
        ["input", "label", "class_1", "probability_1", "class_2", "probability_2"],
        ["0", "b", "b", "0.7", "c", "0.2"],
        ["1", "c", "a", "0.6", "c", "0.3"],
    ]


def test_predictions_are_ordered_by_the_ranking(recorder: Recorder) -> None:
    scores = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    ranking = np.array([[9.0, -200.0, -100.0], [9.0, -100.0, -200.0]])
    keep_predictions(recorder, predictions(scores, ranking))
    _, first, second = rows_of(recorder)
    assert first[2:] == ["a", "1", "c", "0"]
    assert second[2:] == ["a", "1", "b", "0"]


def test_predictions_name_the_files_of_their_inputs(recorder: Recorder) -> None:
    scores = np.array([[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]])
    files = ["cats/1.png", "dogs/2.png"]
    keep_predictions(recorder, predictions(scores, scores, files=files))
    header, first, second = rows_of(recorder)
    assert header[:3] == ["input", "file", "label"]
    assert first[:3] == ["0", "cats/1.png", "b"]
    assert second[:3] == ["1", "dogs/2.png", "c"]


def test_scores_that_are_no_probabilities_are_not_called_so(recorder: Recorder) -> None:
    scores = np.array([[9, 200, 17], [128, 2, 64]], np.float32)
    keep_predictions(recorder, predictions(scores, scores))
    kept = np.load(recorder.folder / "scores.npz")
    assert sorted(kept.files) == ["label", "score"]
    assert kept["score"].tolist() == scores.tolist()
    assert rows_of(recorder)[0] == ["input", "label", "class_1", "score_1", "class_2", "score_2"]


def test_latencies_of_all_processes_are_read_in_their_order(
    recorder: Recorder, tmp_path: Path
) -> None:
    for index in range(2):
        start = np.array([0.0, 1.0])
        times = {"start": start, "end": start + 0.25 * (index + 1)}
        keep_arrays(recorder, f"samples-{index}.npz", times)
    keep_arrays(recorder, "other.npz", {"x": np.zeros(1)})
    artifacts = recorder.recording().as_fields()["artifacts"]
    assert load_latencies(tmp_path, artifacts) == [0.25, 0.25, 0.5, 0.5]


def test_without_a_file_of_samples_there_are_no_latencies(tmp_path: Path) -> None:
    assert load_latencies(tmp_path, {"samples-0.npz": "items/x/samples-0.npz"}) == []
