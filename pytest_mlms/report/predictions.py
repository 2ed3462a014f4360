"""Predictions of an item of accuracy: its files, and the text of its worst inputs."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_mlms.report.artifacts import keep_arrays
from pytest_mlms.text import shortened

if TYPE_CHECKING:
    from pytest_mlms.evaluate.tasks.task import Evidence
    from pytest_mlms.pipeline import Dataset
    from pytest_mlms.recorder import Recorder

__all__ = ["describe_input", "keep_predictions", "worst_inputs"]

_MOST_SHOWN = 5  # inputs
_MOST_COLUMNS = 5
_LONGEST_VALUE = 60  # characters


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


def worst_inputs(evidence: Evidence, dataset: Dataset) -> str:
    """Return a line for each of the worst inputs: its file or row, its label, what was predicted.

    "" where no input is wrong.
    """
    losses = np.nan_to_num(evidence.losses, nan=np.inf)
    worst = np.argsort(-losses, kind="stable")[:_MOST_SHOWN]
    shown = [int(index) for index in worst if losses[index] > 0]
    if not shown:
        return ""
    columns = evidence.columns()
    lines = [f"  {describe_input(index, columns, dataset)}" for index in shown]
    return "\n".join(["  worst inputs:", *[f"  {line}" for line in lines]])


def describe_input(index: int, columns: Mapping[str, Sequence[Any]], dataset: Dataset) -> str:
    """Return what a person is told of one input."""
    cells = []
    for name, values in itertools.islice(columns.items(), _MOST_COLUMNS):
        text = shortened(" ".join(str(values[index]).split()), _LONGEST_VALUE)
        cells.append(f"{name} {text}")
    place = f"row {index}" if dataset.files is None else dataset.files[index]
    return f"{place}: {', '.join(cells)}"
