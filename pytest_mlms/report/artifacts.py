"""The files of an item: everything that was measured, before anything was computed from it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.evaluate.performance import ProcessResult
from pytest_mlms.pipeline import top_k
from pytest_mlms.recorder import Recorder

__all__ = ["keep_arrays", "keep_predictions", "keep_process", "load_latencies"]


def keep_predictions(
    recorder: Recorder, scores: NDArray[Any], labels: NDArray[Any], k: int, names: list[str]
) -> None:
    """Write every score (probabilities.npz), and for a person the k best classes of each input
    (predictions.csv).
    """
    arrays = {"probability": scores.astype(np.float32), "label": labels}
    recorder.keep("probabilities.npz", lambda path: _write_arrays(path, arrays))
    recorder.keep(
        "predictions.csv", lambda path: _write_predictions(path, scores, labels, k, names)
    )


def keep_process(recorder: Recorder, index: int, result: ProcessResult) -> None:
    """Write the raw times of one process.

    Samples-N.npz, the arrays of mlms_predictors._run.scenarios.Samples.
    """
    recorder.keep(f"samples-{index}.npz", lambda path: _write_arrays(path, result.run.times))


def keep_arrays(recorder: Recorder, name: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays by name: of an upgrade's round, pairs-N.npz."""
    recorder.keep(name, lambda path: _write_arrays(path, arrays))


def _write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    np.savez(path, **arrays)


def _write_predictions(
    path: Path, scores: NDArray[Any], labels: NDArray[Any], k: int, names: list[str]
) -> None:
    best = top_k(scores, k)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        heads = [
            f"{what}_{place}"
            for place in range(1, best.shape[1] + 1)
            for what in ("class", "probability")
        ]
        table.writerow(["input", "label", *heads])
        for index, (classes, label) in enumerate(zip(best.tolist(), labels.tolist(), strict=True)):
            cells = [cell for c in classes for cell in (names[c], f"{scores[index, c]:.6g}")]
            table.writerow([index, names[label], *cells])


def load_latencies(folder: Path, artifacts: dict[str, str]) -> list[float]:
    """Return the seconds of every timed call of an item's processes, in their order.

    [] where a file is lost.
    """
    latencies: list[float] = []
    for name, path in artifacts.items():
        if name.startswith("samples-"):
            if not (folder / path).exists():
                return []
            with np.load(folder / path) as times:
                latencies += (times["end"] - times["start"]).tolist()
    return latencies
