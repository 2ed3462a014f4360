"""Predictions of an item of accuracy: its files, and the text of its worst inputs."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.keep.results.line import PredictionsRecord
from pytest_mlms.measure.evaluate.scoring import worst_inputs
from pytest_mlms.measure.evaluate.tasks.task import ClassCounts

if TYPE_CHECKING:
    from pytest_mlms.keep.results.recorder import Recorder
    from pytest_mlms.measure.evaluate.tasks.task import Evidence
    from pytest_mlms.measure.pipeline import Dataset


def predictions_of(evidence: Evidence) -> PredictionsRecord:
    """Return the record of a dataset's evidence.

    The digest is that of the answers as JSON, without blanks, and with escapes beyond ASCII.
    """
    answers = evidence.answers()
    digest = None
    if answers is not None:
        text = json.dumps(list(answers), separators=(",", ":"))
        digest = hashlib.sha256(text.encode()).hexdigest()
    for name, is_right in evidence.shares.items():
        return PredictionsRecord(digest, len(evidence), int(is_right.sum()), name)
    return PredictionsRecord(digest, len(evidence))


def keep_predictions(
    recorder: Recorder, evidence: Evidence, files: Sequence[str] | None = None
) -> None:
    """Keep the arrays of the evidence, and its columns, a row for each input (predictions.csv).

    Of objects and pixels also what was found of each class (classes.csv).

    ``files`` has the file of each input, where inputs are files.
    """
    recorder.note(predictions=predictions_of(evidence))
    for name, arrays in evidence.arrays().items():
        recorder.keep_arrays(name, arrays)
    columns: dict[str, Sequence[Any]] = {"input": range(len(evidence))}
    if files is not None:
        columns["file"] = files
    columns.update(evidence.columns())
    recorder.keep("predictions.csv", lambda path: _write(path, columns))
    classes = evidence.by_class()
    if classes:
        table = dict(zip(ClassCounts._fields, zip(*classes, strict=True), strict=True))
        recorder.keep("classes.csv", lambda path: _write(path, table))


def _write(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))


def list_worst_inputs(evidence: Evidence, dataset: Dataset) -> str:
    """Return the lines of a failure that name the worst inputs; "" where no input is wrong."""
    lines = worst_inputs(evidence, dataset)
    if not lines:
        return ""
    return "\n".join(["  worst inputs:", *[f"    {line}" for line in lines]])
