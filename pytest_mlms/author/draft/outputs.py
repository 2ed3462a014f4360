"""Guesses at the outputs of a model from what it computes of some inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mlms_predictors import Tensor
from numpy.typing import NDArray

from pytest_mlms.author.draft.parts import OutputPart
from pytest_mlms.author.draft.trial import Trial
from pytest_mlms.manifest.schema import BATCH

Array = NDArray[Any]

_USUAL_NAMES = ("prob", "softmax", "score", "logit", "class", "output")
"""Parts of the names of outputs that are classes, likeliest first."""

_LEAST_CLASSES = 4
_LEAST_LABELLED = 2  # where the data has labels
_SUM_TOLERANCE = 1e-3
_SHOWN = 5  # best classes in predictions


def guess_outputs(
    tensors: Sequence[Tensor], trial: Trial, *, labelled: bool
) -> tuple[list[OutputPart], str | None, list[str]]:
    """Return the outputs of a manifest, the name of the one with classes, and those left out.

    Where nothing is ``labelled`` by classes, a table of two or three columns is left as it is.
    """
    usable, left_out = _split(tensors, trial)
    best = _classification(usable, trial, labelled)
    parts = [_part(tensor, trial, tensor.name == best) for tensor in usable]
    return parts, best, [tensor.name for tensor in left_out]


def guess_numbers(tensors: Sequence[Tensor], trial: Trial) -> list[OutputPart]:
    """Return the outputs of a model whose labels are numbers."""
    usable, _ = _split(tensors, trial)
    return [_part(tensor, trial, has_classes=False) for tensor in usable]


def guess_masks(tensors: Sequence[Tensor], trial: Trial, sides: Sequence[int]) -> list[OutputPart]:
    """Return the output of a model whose labels are the classes of pixels, with these ``sides``.

    Returns nothing where no output has as many pixels.
    """
    usable, _ = _split(tensors, trial)
    for tensor in usable:
        shape = trial.rows(tensor.name).shape[1:]
        axis = _axis_of_classes(shape, tuple(sides))
        if axis is not None:
            comment = f"the best of {shape[axis]} classes of each pixel"
            steps = [f"argmax: {{axis: {axis + 1}}}"]
            return [OutputPart(tensor.name, "mask", steps=steps, comment=comment)]
        if shape == tuple(sides):
            return [OutputPart(tensor.name, "mask")]
    return []


def _axis_of_classes(shape: tuple[int, ...], sides: tuple[int, ...]) -> int | None:
    """Return the axis of a row without which it has these sides, None where there is none."""
    for axis in range(len(shape)):
        others = shape[:axis] + shape[axis + 1 :]
        if others == sides:
            return axis
    return None


def _split(tensors: Sequence[Tensor], trial: Trial) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs that have a row for each input, and the others."""
    usable: list[Tensor] = []
    left_out: list[Tensor] = []
    for tensor in tensors:
        has_rows = tensor.name in trial.outputs and trial.batch_axis(tensor.name) is not None
        (usable if has_rows else left_out).append(tensor)
    return usable, left_out


def classes_of(trial: Trial, name: str) -> int:
    """Return the number of classes of an output."""
    rows = trial.rows(name)
    return int(np.prod(rows.shape[1:]))


def _classification(tensors: Sequence[Tensor], trial: Trial, labelled: bool) -> str | None:
    """Return the output that most likely has a score for each class, None where none has."""
    least = _LEAST_LABELLED if labelled else _LEAST_CLASSES
    names = []
    for tensor in tensors:
        if _is_table(trial.rows(tensor.name), least):
            names.append(tensor.name)
    if not names:
        return None
    has_others = len(names) < len(tensors)
    if has_others and not labelled:
        return None
    return min(names, key=_rank)


def _is_table(rows: Array, least: int) -> bool:
    """Return whether each row is a list of at least so many scores, along one axis of it."""
    sizes = [size for size in rows.shape[1:] if size != 1]
    return rows.dtype.kind == "f" and len(sizes) == 1 and sizes[0] >= least


def _rank(name: str) -> int:
    """Return the place of a name among those that are usual for classes."""
    for rank, part in enumerate(_USUAL_NAMES):
        if part in name.lower():
            return rank
    return len(_USUAL_NAMES)


def _part(tensor: Tensor, trial: Trial, has_classes: bool) -> OutputPart:
    axis = trial.batch_axis(tensor.name) or 0
    shape: list[int | str] | None = None
    if axis:
        shape = list(trial.outputs[tensor.name].shape)
        shape[axis] = BATCH
    if not has_classes:
        return OutputPart(tensor.name, "tensor", shape)
    rows = trial.rows(tensor.name).reshape(trial.small, -1)
    steps, comment = _steps(rows)
    return OutputPart(tensor.name, "classification", shape, steps, comment)


def _steps(rows: Array) -> tuple[list[str], str]:
    """Return the steps of classes, and what the values of a trial say of them."""
    classes = rows.shape[1]
    best = f"top_k: {{k: {min(_SHOWN, classes)}}}"
    are_shares = _are_shares(rows)
    if are_shares and _add_up(rows):
        return [best], "its rows add up to 1: probabilities"
    if are_shares and classes > 1:
        return [best], "0 to 1 each, and they do not add up to 1: no softmax"
    return ["softmax", best], "logits: its rows do not add up to 1"


def _are_shares(rows: Array) -> bool:
    """Return whether all values are 0 to 1."""
    with np.errstate(all="ignore"):
        return bool((rows >= 0).all() and (rows <= 1).all())


def _add_up(rows: Array) -> bool:
    """Return whether the sum of each row is 1."""
    with np.errstate(all="ignore"):
        sums = rows.astype(np.float64).sum(axis=1)
        return bool((np.abs(sums - 1) < _SUM_TOLERANCE).all())
