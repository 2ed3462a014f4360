"""The output steps: probabilities of logits, the best classes, and the names of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from pytest_mlms.errors import DatasetError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.pipeline import observers

__all__ = ["postprocess", "read_labels", "top_k"]

Array = NDArray[Any]


def postprocess(output: Array, spec: Output) -> Array:
    """Return the scores of a model's output, both N x classes.

    All steps but top_k are done, in the order of the manifest.
    """
    scores = output
    for step in spec.steps:
        if step.name == "softmax":
            with observers.step(step.name):
                scores = np.asarray(softmax(scores, axis=-1))
    return scores


def top_k(scores: Array, k: int) -> Array:
    """Return the indices of the k largest scores of each row (N x k), best first.

    Of equal scores the one with the lower index comes first.
    """
    order = np.argsort(-scores, axis=-1, kind="stable")
    return order[..., :k]


def read_labels(path: Path, classes: int) -> list[str]:
    """Return the names of the classes, one a line of the file.

    Raises DatasetError where there are more or fewer than ``classes``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        advice = "save it as UTF-8, one label a line"
        raise DatasetError(f"{path} can't be read: {error}; {advice}") from error
    lines = [line.strip() for line in text.splitlines()]
    labels = [line for line in lines if line]
    if len(labels) != classes:
        problem = f"{path} has {len(labels)} labels, and the model {classes} classes"
        raise DatasetError(f"{problem}; write one a line")
    return labels
