"""The output steps: probabilities from logits, the best classes from probabilities, their names
from a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.errors import DatasetError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.pipeline import observers as watch

__all__ = ["postprocess", "read_labels", "softmax", "top_k"]

Array = NDArray[Any]


def postprocess(output: Array, spec: Output) -> Array:
    """Return N x classes scores: every step but top_k, in the order written."""
    for step in spec.steps:
        if step.name == "softmax":
            with watch.step(step.name):
                output = softmax(output)
    return output


def softmax(logits: Array) -> Array:
    """Return exp(x) / sum(exp(x)) over the last axis, shifted by the maximum so that nothing
    overflows.
    """
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def top_k(scores: Array, k: int) -> Array:
    """Return the indices of the k largest of each row (N x k), best first.

    Of equal ones the lower index is better.
    """
    return np.argsort(-scores, axis=-1, kind="stable")[..., :k]


def read_labels(path: Path, classes: int) -> list[str]:
    """Return the names of the classes.

    Raises DatasetError where there are fewer or more than ``classes``.
    """
    try:
        labels = [
            line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
        ]
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{path} can't be read: {error}; save it as UTF-8, one label a line"
        ) from error
    if len(labels) != classes:
        raise DatasetError(
            f"{path} has {len(labels)} labels, and the model {classes} classes; write one a line"
        )
    return labels
