"""The output steps: probabilities of logits, the best classes, and the names of classes.

Classes are ranked by the values of the model's own output. Softmax keeps their order, but makes
equal what is far below the largest value: its probability is rounded to 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.manifest.box_steps import DropBackground
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.pipeline import observers
from pytest_mlms.measure.pipeline.name_files import read_names

Array = NDArray[Any]


def is_table(values: Array) -> bool:
    """Return whether an output is inputs x classes, beside axes of 1 such as N x 1000 x 1 x 1."""
    if values.ndim < 2:
        return False
    long_axes = [size for size in values.shape[1:] if size != 1]
    return len(long_axes) <= 1


def table_of(spec: Output, values: Array, inputs: int) -> Array:
    """Return an output of so many inputs as inputs x classes, without the background.

    Raises OutputError where it isn't a table of them.
    """
    if len(values.shape) == 0 or len(values) != inputs or not is_table(values):
        found = f"output {spec.name!r} of {inputs} inputs is {values.shape}"
        advice = "name another output, or write 'type: tensor'"
        raise OutputError(f"{found}; expected inputs x classes; {advice}")
    return _without_background(spec, values.reshape(inputs, -1))


def _without_background(spec: Output, table: Array) -> Array:
    """Return a table without the class that the first step drops, if it is ``drop_background``."""
    dropped = spec.steps[0].parameters if spec.steps else None
    if not isinstance(dropped, DropBackground):
        return table
    classes = table.shape[1]
    if dropped.index >= classes:
        problem = f"output {spec.name!r} has {classes} classes"
        raise OutputError(f"{problem}, and the background is number {dropped.index}; correct it")
    with observers.step("drop_background"):
        return np.delete(table, dropped.index, axis=1)


def postprocess(output: Array, spec: Output) -> Array:
    """Return the scores of a model's output, both N x classes.

    All steps but top_k are done, in the order of the manifest. The background is dropped already,
    by ``table_of``.
    """
    scores = output
    for step in spec.steps:
        if step.name == "softmax":
            with observers.step(step.name):
                scores = np.asarray(scipy.special.softmax(scores, axis=-1))
    return scores


def top_k(scores: Array, k: int) -> Array:
    """Return the indices of the k largest scores of each row (N x k), best first.

    Of equal scores the one with the lower index comes first.
    """
    last = scores.shape[-1] - 1
    ascending = np.argsort(scores[..., ::-1], axis=-1, kind="stable")
    best_first = last - ascending[..., ::-1]
    return np.asarray(best_first[..., :k])


def read_labels(path: Path, classes: int | None = None) -> list[str]:
    """Return the names of the classes, one a line of the file.

    Raises DatasetError where there are more or fewer than ``classes``, if it is said.
    """
    labels = read_names(path, "label")
    if classes is not None and len(labels) != classes:
        problem = f"{path} has {len(labels)} labels, and the model {classes} classes"
        raise DatasetError(f"{problem}; write one a line")
    return labels
