"""The artifacts of an item: everything that was measured, before anything was computed from it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.arrays import DamagedFile, read_arrays, write_arrays
from pytest_mlms.evaluate.process_result import ProcessResult
from pytest_mlms.evaluate.ranking import are_probabilities
from pytest_mlms.pipeline import top_k
from pytest_mlms.recorder import Recorder

__all__ = ["Predictions", "keep_arrays", "keep_predictions", "keep_process", "load_latencies"]


@dataclass(frozen=True)
class Predictions:
    """The scores of a dataset's inputs.

    ``scores`` is inputs x classes, and ``ranking`` the values that order the classes. ``labels``
    has the right class of each input, ``names`` the name of each class, and ``files`` the file of
    each input, where inputs are files. ``k`` is how many of the best classes a person is shown.
    """

    scores: NDArray[Any]
    ranking: NDArray[Any]
    labels: NDArray[Any]
    names: Sequence[str]
    k: int
    files: Sequence[str] | None = None

    @property
    def kind(self) -> str:
        """The word for a score: probability, if all rows are probabilities."""
        return "probability" if are_probabilities(self.scores) else "score"


def keep_predictions(recorder: Recorder, predictions: Predictions) -> None:
    """Keep all scores, and the best classes of each input (predictions.csv).

    Scores are in probabilities.npz, or in scores.npz where they are not probabilities.
    """
    kind = predictions.kind
    arrays = {
        kind: predictions.scores.astype(np.float32),
        "label": predictions.labels,
    }
    name = "probabilities.npz" if kind == "probability" else "scores.npz"
    keep_arrays(recorder, name, arrays)
    recorder.keep("predictions.csv", lambda path: _write_predictions(path, predictions))


def keep_process(recorder: Recorder, index: int, result: ProcessResult) -> None:
    """Keep the raw times of one process (samples-N.npz).

    mlms_predictors._run.scenarios.Samples describes the arrays.
    """
    keep_arrays(recorder, f"samples-{index}.npz", result.run.times)


def keep_arrays(recorder: Recorder, name: str, arrays: Mapping[str, Any]) -> None:
    """Keep arrays by name in an .npz file."""
    recorder.keep(name, lambda path: write_arrays(path, arrays))


def load_latencies(folder: Path, artifacts: Mapping[str, str]) -> list[float]:
    """Return the seconds of every timed call of an item's processes, in order.

    Returns an empty list where a file is missing or damaged.
    """
    latencies: list[float] = []
    for name, path in artifacts.items():
        if not name.startswith("samples-"):
            continue
        try:
            times = read_arrays(folder / path)
        except (OSError, DamagedFile):
            return []
        seconds = times["end"] - times["start"]
        latencies += seconds.tolist()
    return latencies


def _write_predictions(path: Path, predictions: Predictions) -> None:
    best = top_k(predictions.ranking, predictions.k)
    header = ["input", "label"]
    if predictions.files is not None:
        header.insert(1, "file")
    kind = predictions.kind
    for place in range(1, best.shape[1] + 1):
        header += [f"class_{place}", f"{kind}_{place}"]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(header)
        for index, classes in enumerate(best.tolist()):
            table.writerow(_prediction_row(predictions, index, classes))


def _prediction_row(predictions: Predictions, index: int, classes: Sequence[int]) -> list[Any]:
    label = predictions.labels[index]
    row: list[Any] = [index]
    if predictions.files is not None:
        row.append(predictions.files[index])
    row.append(predictions.names[label])
    for number in classes:
        score = predictions.scores[index, number]
        row += [predictions.names[number], f"{score:.6g}"]
    return row
