"""Predictions of an item of accuracy: its files, and the text of its worst inputs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_mlms.evaluate.worst_inputs import worst_inputs
from pytest_mlms.report.artifacts import keep_arrays

if TYPE_CHECKING:
    from pytest_mlms.evaluate.tasks.task import Evidence
    from pytest_mlms.pipeline import Dataset
    from pytest_mlms.recorder import Recorder

__all__ = ["keep_predictions", "list_worst_inputs"]


def keep_predictions(
    recorder: Recorder, evidence: Evidence, files: Sequence[str] | None = None
) -> None:
    """Keep the arrays of the evidence, and its columns, a row for each input (predictions.csv).

    ``files`` has the file of each input, where inputs are files.
    """
    for name, arrays in evidence.arrays().items():
        keep_arrays(recorder, name, arrays)
    columns: dict[str, Sequence[Any]] = {"input": range(len(evidence))}
    if files is not None:
        columns["file"] = files
    columns.update(evidence.columns())
    recorder.keep("predictions.csv", lambda path: _write(path, columns))


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
