"""The files of an item: everything that was measured, before anything was computed from it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.measure import ProcessResult
from pytest_mlms.pipeline import top_k
from pytest_mlms.recorder import Recorder

__all__ = ["keep_predictions", "keep_process", "load_latencies"]


def keep_predictions(recorder: Recorder, scores: NDArray[Any], labels: NDArray[Any], k: int, names: list[str]) -> None:
    """Write every score (probabilities.npz), and for a person the k best classes of each input (predictions.csv)."""
    np.savez(recorder.path("probabilities.npz"), probability=scores.astype(np.float32), label=labels)
    best = top_k(scores, k)
    with recorder.path("predictions.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(
            ["input", "label", *(f"{what}_{i + 1}" for i in range(best.shape[1]) for what in ("class", "p"))]
        )
        for index, (row, label) in enumerate(zip(best.tolist(), labels.tolist(), strict=True)):
            table.writerow([index, names[label], *(x for c in row for x in (names[c], f"{scores[index, c]:.6g}"))])


def keep_process(recorder: Recorder, index: int, result: ProcessResult) -> None:
    """Write the raw times of one process: samples-N.npz, the arrays of mlms_predictors._run.scenarios.Samples."""
    np.savez(recorder.path(f"samples-{index}.npz"), **cast(dict[str, Any], result.run.times))


def load_latencies(folder: Path, artifacts: dict[str, str]) -> list[float]:
    """Return the seconds of every timed call of an item's processes, in the order of the calls."""
    latencies: list[float] = []
    for name, path in artifacts.items():
        if name.startswith("samples-"):
            with np.load(folder / path) as times:
                latencies += (times["end"] - times["start"]).tolist()
    return latencies
