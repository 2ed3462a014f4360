"""Guesses at the outputs of models that find objects in pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mlms_predictors import Tensor
from numpy.typing import NDArray

from pytest_mlms.draft.parts import OutputPart, scalar
from pytest_mlms.draft.trial import Trial
from pytest_mlms.errors import MlmsError

__all__ = ["guess_objects"]

Array = NDArray[Any]

_BEST_FEW = 1000
"""Rows up to which an output has detections that were chosen, and not all anchors."""
_RELATIVE = 2.0
"""Coordinates below this are shares of the model's input."""
_CHOICE = ("min_score: {score: 0.001}", "nms: {iou: 0.7}")
_ADVICE = "docs/detection.md has the forms; write the outputs by hand"


def guess_objects(
    tensors: Sequence[Tensor], trial: Trial, categories: Sequence[str], names: Sequence[str]
) -> list[OutputPart]:
    """Return the outputs of a detector.

    ``categories`` are those of the dataset, in the order of their ids, ``names`` those of the
    model's classes where they are known. Raises MlmsError for outputs of an unknown form.
    """
    rows = {}
    for tensor in tensors:
        if tensor.name in trial.outputs and trial.batch_axis(tensor.name) is not None:
            rows[tensor.name] = trial.rows(tensor.name)
    shapes = {name: values.shape[1:] for name, values in rows.items()}
    boxes = [name for name, shape in shapes.items() if len(shape) == 2 and shape[1] == 4]
    if len(boxes) == 1 and len(rows) > 1:
        return _separate(boxes[0], rows, categories, names)
    for name, values in rows.items():
        found = _whole(values)
        if found is not None:
            first, classes, comment = found
            steps = [first]
            if classes is not None:
                steps += _CHOICE
            steps += _classes(classes, categories, names)
            return [OutputPart(name, "boxes", steps=steps, comment=comment)]
    shown = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    raise MlmsError(f"the outputs are no boxes of a form that is known here: {shown}; {_ADVICE}")


def _whole(values: Array) -> tuple[str, int | None, str] | None:
    """Return the first step of an output that has everything, and how many classes it tells.

    None where that isn't known: classes are numbers then.
    """
    shape = values.shape[1:]
    if len(shape) == 3 and shape[0] == 1 and shape[2] == 7:
        names = "[image, class, score, x1, y1, x2, y2]"
        return f"columns: {{names: {names}, units: relative}}", None, "as SSD of Caffe gives them"
    if len(shape) != 2:
        return None
    if shape[1] == 6 and shape[0] <= _BEST_FEW:
        names = "[x1, y1, x2, y2, score, class]"
        units = _units(values[..., :4])
        return f"columns: {{names: {names}{units}}}", None, "a guess by 6 columns"
    if shape[0] > 4 and shape[1] > 4 * shape[0]:
        units = _units(values[:, :4])
        step = "yolo: {units: relative}" if units else "yolo"
        return step, shape[0] - 4, "YOLO's raw head, as of version 8"
    if shape[1] > 5 and shape[0] > shape[1]:
        units = _units(values[..., :4])
        return f"yolo: {{head: v5{units}}}", shape[1] - 5, "YOLO's raw head, as of version 5"
    return None


def _units(coordinates: Array) -> str:
    """Return the parameter for coordinates that are shares, "" for pixels."""
    largest = float(np.nanmax(np.abs(coordinates), initial=0.0))
    return ", units: relative" if largest < _RELATIVE else ""


def _separate(
    boxes: str, rows: dict[str, Array], categories: Sequence[str], names: Sequence[str]
) -> list[OutputPart]:
    """Return outputs for boxes, scores, classes and their count."""
    count = rows[boxes].shape[1]
    parts = []
    classes: int | None = None
    for name, values in rows.items():
        shape = values.shape[1:]
        lower = name.lower()
        if name == boxes:
            continue
        if shape in ((), (1,)):
            parts.append(OutputPart(name, "count"))
        elif shape[:1] != (count,):
            continue
        elif len(shape) == 2 and shape[1] > 1:
            classes = shape[1]
            parts.append(OutputPart(name, "scores"))
        elif "class" in lower or "label" in lower or values.dtype.kind in "iu":
            parts.append(OutputPart(name, "classes"))
        else:
            parts.append(OutputPart(name, "scores"))
    is_tensorflow = "detection_" in boxes
    first = f"boxes: {{format: {'yxyx' if is_tensorflow else 'xyxy'}{_units(rows[boxes])}}}"
    steps = [first, *(_CHOICE if classes else ()), *_classes(classes, categories, names)]
    comment = "" if is_tensorflow else "a guess: corners as x1, y1, x2, y2"
    return [OutputPart(boxes, "boxes", steps=steps, comment=comment), *parts]


def _classes(classes: int | None, categories: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the step that says which category each class is, none where the order is the same.

    Raises MlmsError where that can't be known.
    """
    count = classes or len(names) or len(categories)
    if names and len(names) == count:
        known = {name.casefold(): name for name in categories}
        found = [known.get(name.casefold()) for name in names]
        if any(found):
            if found == list(categories):
                return []
            return [f"classes: {{names: [{', '.join(map(_name, found))}]}}"]
    if count == len(categories):
        return []
    if count == len(categories) + 1:
        found = [None, *categories]
        return [f"classes: {{names: [{', '.join(map(_name, found))}]}}"]
    problem = f"the model has {count} classes, and the COCO file {len(categories)} categories"
    advice = "name the file with the model's, one a line in its order: --labels FILE"
    raise MlmsError(f"{problem} ({', '.join(categories[:5])}); {advice}")


def _name(name: str | None) -> str:
    return "null" if name is None else scalar(name)
