"""Guesses at the outputs of a model by its results for some inputs: classes, masks, objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.author.draft.labels import (
    ZIPMAP,
    fitting_outputs,
    maps_among,
    number_of_class,
    score_tables,
)
from pytest_mlms.author.draft.opening import Trial
from pytest_mlms.author.draft.parts import OutputPart, scalar
from pytest_mlms.author.draft.quantisation import Quantisation
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.schema import BATCH

Quantised = Mapping[str, Quantisation]
"""The quantisation of outputs by name."""

_USUAL_NAMES = ("prob", "softmax", "score", "logit", "class", "output")
"""Parts of the names of outputs that are classes, likeliest first."""

_SCORES = ("prob", "softmax", "score", "logit", "class")
"""Parts of the names of outputs that are classes without labels that say so."""
_NO_CLASSES = ("box", "embed", "feature", "landmark", "point")
_IMAGENET = (1000, 1001)  # classes, with the background or without it
_UNSURE = "not taken for scores of classes; where they are, give labels, or --task classification"

_NUMBERS = "the number of the class, without scores"
_FIRST_OF = "a guess: scored, as the first of {} as long as a label; put what labels are of first"

_LEAST_CLASSES = 4
_LEAST_LABELLED = 2  # where the data has labels
_SUM_TOLERANCE = 1e-3
_SHOWN = 5  # best classes in predictions
_BEST_FEW = 1000
"""Rows up to which an output has detections that were chosen, and not all anchors."""
_RELATIVE = 2.0
"""Coordinates below this are shares of the model's input."""
_CHOICE = ("min_score: {score: 0.001}", "nms: {iou: 0.7}")
_CAFFE_COLUMNS = "[image, class, score, x1, y1, x2, y2]"
_COLUMNS = "[x1, y1, x2, y2, score, class]"
_SHOWN_CATEGORIES = 5  # categories in an error
_ADVICE = "docs/detection.md has the forms; write the outputs by hand"


def guess_outputs(
    tensors: Sequence[Tensor],
    trial: Trial,
    *,
    labelled: bool,
    classes: int = 0,
    inputs: Sequence[tuple[int | None, ...]] = (),
    quantised: Quantised = MappingProxyType({}),
) -> tuple[list[OutputPart], str | None, list[str]]:
    """Return the outputs of a manifest, the name of the one with classes, and those left out.

    Where nothing is ``labelled`` by classes, a table of two or three columns is left as it is, and
    one of bytes, and others are classes by their name, their number, or as probabilities, unless
    they are as long as a row of ``inputs``. The labels are of so many ``classes`` or more.
    """
    usable = _with_rows(tensors, trial)
    tables = score_tables(trial, least=_LEAST_CLASSES, bytes_too=False)
    best = _classification(usable, trial, labelled, classes, inputs, quantised)
    parts = []
    for tensor in usable:
        part = _part(tensor, trial, tensor.name == best, quantised)
        if best is None and tensor.name in tables:
            part = replace(part, comment=_UNSURE)
        parts.append(part)
    left_out = [tensor.name for tensor in tensors if tensor not in usable]
    return parts, best, left_out


def further_outputs(
    tensors: Sequence[Tensor], trial: Trial, quantised: Quantised
) -> list[OutputPart]:
    """Return outputs that no task scores, also those without a row for each input."""
    usable = _with_rows(tensors, trial)
    others = [tensor for tensor in tensors if tensor not in usable]
    parts = [_part(tensor, trial, False, quantised) for tensor in usable]
    if trial.small > 1 and trial.small == trial.large:
        return parts  # of a batch that can't be one input
    comment = "not as long as the batch: one input a call"
    without = [
        replace(_part(tensor, trial, False, quantised), comment=comment, batch="none")
        for tensor in others
        if tensor.name in trial.outputs
    ]
    return [*parts, *without]


def guess_numbers(
    tensors: Sequence[Tensor],
    trial: Trial,
    fitting: Sequence[str] = (),
    quantised: Quantised = MappingProxyType({}),
) -> list[OutputPart]:
    """Return the outputs of a model whose labels are numbers, first those as long as a label.

    The first one is scored.
    """
    usable = _with_rows(tensors, trial)
    usable.sort(key=lambda tensor: tensor.name not in fitting)
    parts = [_part(tensor, trial, False, quantised) for tensor in usable]
    if len(fitting) > 1:
        parts[0] = replace(parts[0], comment=_FIRST_OF.format(len(fitting)))
    return parts


def guess_answers(
    tensors: Sequence[Tensor],
    trial: Trial,
    classes: int,
    quantised: Quantised = MappingProxyType({}),
) -> tuple[list[OutputPart], bool] | None:
    """Return the outputs of a model that gives one number for the class of each input.

    The number is that of the class, or a score of class 1 where the labels are of two ``classes``,
    or of an unknown number of them (0); then the second value is True. None for other models.
    """
    usable = _with_rows(tensors, trial)
    number = number_of_class(trial)
    scores = fitting_outputs(trial, 1, quantised) if classes <= _LEAST_LABELLED else []
    if number is not None:
        best, (steps, comment) = number, (["class_numbers", "top_k: {k: 1}"], _NUMBERS)
        if maps_among(tensors):
            comment = f"{_NUMBERS}; its scores are maps: export them as an array by {ZIPMAP}"
    elif len(scores) == 1:
        best = scores[0]
        steps, comment = _steps_of_one(best, trial.rows(best), quantised.get(best))
    else:
        return None
    parts = []
    for tensor in usable:
        part = _part(tensor, trial, False, quantised)
        if tensor.name == best:
            part = replace(part, type="classification", steps=steps, comment=comment)
        parts.append(part)
    return parts, number is None


def _steps_of_one(
    name: str, rows: Array, quantisation: Quantisation | None
) -> tuple[list[str], str]:
    """Return the steps of a score of class 1, and a comment on them by the values of a trial."""
    before = []
    if quantisation is not None:
        before = [_dequantize(quantisation)]
        rows = np.array(quantisation.range(rows.dtype.name)).round(2)
    with np.errstate(all="ignore"):
        are_shares = bool((rows >= 0).all() and (rows <= 1).all())
    steps = ["threshold: {above: 0.5}", f"top_k: {{k: {_LEAST_LABELLED}}}"]
    if are_shares and "logit" not in name.lower():
        return [*before, *steps], "a guess: the probability of class 1, as it is from 0 to 1"
    return [*before, "sigmoid", *steps], "a guess: the logit of class 1, as it is not from 0 to 1"


def guess_masks(tensors: Sequence[Tensor], trial: Trial, sides: Sequence[int]) -> list[OutputPart]:
    """Return the output of a model whose labels are the classes of pixels, with these ``sides``.

    Returns nothing where no output has as many pixels.
    """
    for tensor in _with_rows(tensors, trial):
        shape = trial.rows(tensor.name).shape[1:]
        if shape == tuple(sides):
            return [OutputPart(tensor.name, "mask")]
        for axis, size in enumerate(shape):
            if shape[:axis] + shape[axis + 1 :] == tuple(sides):
                comment = f"the best of {size} classes of each pixel"
                steps = [f"argmax: {{axis: {axis + 1}}}"]
                return [OutputPart(tensor.name, "mask", steps=steps, comment=comment)]
    return []


def _with_rows(tensors: Sequence[Tensor], trial: Trial) -> list[Tensor]:
    """Return the outputs that have a row for each input."""
    found = []
    for tensor in tensors:
        if tensor.name in trial.outputs and trial.batch_axis(tensor.name) is not None:
            found.append(tensor)
    return found


def classes_of(trial: Trial, name: str) -> int:
    """Return the number of classes of an output."""
    rows = trial.rows(name)
    return int(np.prod(rows.shape[1:]))


def _classification(
    tensors: Sequence[Tensor],
    trial: Trial,
    labelled: bool,
    classes: int,
    inputs: Sequence[tuple[int | None, ...]],
    quantised: Quantised,
) -> str | None:
    """Return the output that most likely has a score for each class, None where none has."""
    least = max(_LEAST_LABELLED if labelled else _LEAST_CLASSES, classes)
    names = list(score_tables(trial, least=least, bytes_too=labelled or bool(quantised)))
    if not labelled:
        names = [
            name
            for name in names
            if _may_be_classes(name, trial.rows(name), inputs, quantised.get(name))
        ]
    if not names:
        return None
    has_others = len(names) < len(tensors)
    if has_others and not labelled:
        return None
    return min(names, key=_rank)


def says_classes(trial: Trial) -> bool:
    """Return whether a table of scores is one of classes by its name, number or sums."""
    return any(_may_be_classes(name, trial.rows(name), ()) for name in score_tables(trial))


def _may_be_classes(
    name: str,
    rows: Array,
    inputs: Sequence[tuple[int | None, ...]],
    quantisation: Quantisation | None = None,
) -> bool:
    """Return whether a table without labels is one of classes, and no embedding or such."""
    if quantisation is not None and quantisation.are_shares(rows.dtype.name):
        return True
    if _are_probabilities(rows.reshape(len(rows), -1)):
        return True
    words = name.lower()
    if rows.shape[1:] in inputs or any(word in words for word in _NO_CLASSES):
        return False
    return any(word in words for word in _SCORES) or rows[0].size in _IMAGENET


def _are_probabilities(rows: Array) -> bool:
    """Return whether each row has shares that add up to 1."""
    with np.errstate(all="ignore"):
        sums = rows.astype(np.float64).sum(axis=1)
        return bool((rows >= 0).all() and (np.abs(sums - 1) < _SUM_TOLERANCE).all())


def _rank(name: str) -> int:
    """Return the place of a name among those that are usual for classes, embeddings the last."""
    for rank, part in enumerate(_USUAL_NAMES):
        if part in name.lower():
            return rank
    is_other = any(part in name.lower() for part in _NO_CLASSES)
    return len(_USUAL_NAMES) + is_other


def _part(tensor: Tensor, trial: Trial, has_classes: bool, quantised: Quantised) -> OutputPart:
    quantisation = quantised.get(tensor.name)
    axis = trial.batch_axis(tensor.name) or 0
    shape: list[int | str] | None = None
    if axis:
        shape = list(trial.outputs[tensor.name].shape)
        shape[axis] = BATCH
    if not has_classes:
        before = [_dequantize(quantisation)] if quantisation else ()
        return OutputPart(tensor.name, "tensor", shape, before)
    rows = trial.rows(tensor.name).reshape(trial.small, -1)
    steps, comment = _steps(rows) if quantisation is None else _of_integers(rows, quantisation)
    return OutputPart(tensor.name, "classification", shape, steps, comment)


def _steps(rows: Array) -> tuple[list[str], str]:
    """Return the steps of classes, and a comment on them by the values of a trial."""
    classes = rows.shape[1]
    best = f"top_k: {{k: {min(_SHOWN, classes)}}}"
    if rows.dtype.kind in "iu":
        return [best], f"quantised scores ({rows.dtype}), ranked as they are"
    with np.errstate(all="ignore"):
        are_shares = bool((rows >= 0).all() and (rows <= 1).all())
    if _are_probabilities(rows):
        return [best], "its rows add up to 1: probabilities"
    if are_shares and classes > 1:
        return [best], "0 to 1 each, and they do not add up to 1: no softmax"
    return ["softmax", best], "logits, as a guess: its rows do not add up to 1"


def _of_integers(rows: Array, quantisation: Quantisation) -> tuple[list[str], str]:
    """Return the steps of quantised scores of classes, and a comment on them by their scale."""
    best = f"top_k: {{k: {min(_SHOWN, rows.shape[1])}}}"
    steps = [_dequantize(quantisation)]
    low, high = quantisation.range(rows.dtype.name)
    stands_for = f"{rows.dtype} stands for {low:.4g} to {high:.4g}"
    if quantisation.are_shares(rows.dtype.name):
        return [*steps, best], f"{stands_for}: probabilities"
    return [*steps, "softmax", best], f"logits, as a guess: {stands_for}"


def _dequantize(quantisation: Quantisation) -> str:
    return f"dequantize: {{{quantisation.parameters}}}"


class _Form(NamedTuple):
    """The form of boxes: the step that reads it, and why it is so.

    ``classes`` is the number of scores of each box, None where it has the number of its class.
    """

    step: str
    classes: int | None
    comment: str


def guess_objects(
    tensors: Sequence[Tensor],
    trial: Trial,
    categories: Sequence[str],
    names: Sequence[str],
    quantised: Quantised = MappingProxyType({}),
) -> list[OutputPart]:
    """Return the outputs of a detector.

    ``categories`` are those of the dataset, in the order of their ids, ``names`` those of the
    model's classes where they are known. Raises MlmsError for outputs of an unknown form.
    """
    rows = {}
    for tensor in _with_rows(tensors, trial):
        values = trial.rows(tensor.name)
        if values.dtype.kind != "U":
            known = quantised.get(tensor.name)
            rows[tensor.name] = known.real(values) if known else values
    boxes = [name for name, values in rows.items() if values.ndim == 3 and values.shape[2] == 4]
    if len(boxes) == 1 and len(rows) > 1:
        parts = _separate(boxes[0], rows, categories, names)
    else:
        forms = ((name, _form_of(values)) for name, values in rows.items())
        parts = [_boxes(name, form, categories, names) for name, form in forms if form][:1]
    if parts:
        return [_with_dequantize(part, quantised.get(part.name)) for part in parts]
    shapes = [f"{name} {values.shape[1:]}" for name, values in rows.items()]
    problem = "the outputs are no boxes of a form that is known here"
    raise MlmsError(f"{problem}: {', '.join(shapes)}; {_ADVICE}")


def _with_dequantize(part: OutputPart, quantisation: Quantisation | None) -> OutputPart:
    """Return an output of boxes or scores whose integers become real numbers first."""
    if quantisation is None or part.type not in ("boxes", "scores"):
        return part
    return replace(part, steps=[_dequantize(quantisation), *part.steps])


def _boxes(name: str, form: _Form, categories: Sequence[str], names: Sequence[str]) -> OutputPart:
    """Return the output with the boxes; of scores for all classes the best are chosen."""
    steps = [form.step]
    if form.classes is not None:
        steps += _CHOICE
    steps += _classes(form.classes, categories, names)
    return OutputPart(name, "boxes", steps=steps, comment=form.comment)


def _form_of(values: Array) -> _Form | None:
    """Return the form of an output that has boxes, scores and classes, None for another one."""
    shape = values.shape[1:]
    if len(shape) == 3 and shape[0] == 1 and shape[2] == 7:
        step = f"columns: {{names: {_CAFFE_COLUMNS}, units: relative}}"
        return _Form(step, None, "as SSD of Caffe gives them")
    if len(shape) != 2:
        return None
    rows, columns = shape
    if columns == 6 and rows <= _BEST_FEW:
        units = _units(values[..., :4])
        return _Form(f"columns: {{names: {_COLUMNS}{units}}}", None, "a guess by 6 columns")
    if rows > 4 and columns > 4 * rows:
        units = _units(values[:, :4])
        step = "yolo: {units: relative}" if units else "yolo"
        return _Form(step, rows - 4, "YOLO's raw head, as of version 8")
    if columns > 5 and rows > columns:
        units = _units(values[..., :4])
        return _Form(f"yolo: {{head: v5{units}}}", columns - 5, "YOLO's raw head, as of version 5")
    return None


def _units(coordinates: Array) -> str:
    """Return the parameter for coordinates that are shares, "" for pixels."""
    largest = float(np.nanmax(np.abs(coordinates), initial=0.0))
    return ", units: relative" if largest < _RELATIVE else ""


def _separate(
    boxes: str, rows: Mapping[str, Array], categories: Sequence[str], names: Sequence[str]
) -> list[OutputPart]:
    """Return outputs for boxes, scores, classes and their count."""
    count = rows[boxes].shape[1]
    parts = []
    classes: int | None = None
    for name, values in rows.items():
        kind = "" if name == boxes else _kind_of(name, values, count)
        if kind:
            parts.append(OutputPart(name, kind))
        if kind == "scores" and values.ndim == 3 and values.shape[2] > 1:
            classes = values.shape[2]
    is_tensorflow = "detection_" in boxes
    corners = "yxyx" if is_tensorflow else "xyxy"
    step = f"boxes: {{format: {corners}{_units(rows[boxes])}}}"
    comment = "" if is_tensorflow else "a guess: corners as x1, y1, x2, y2"
    return [_boxes(boxes, _Form(step, classes, comment), categories, names), *parts]


def _kind_of(name: str, values: Array, count: int) -> str:
    """Return the type of an output beside ``count`` boxes, "" for one that says nothing of them."""
    shape = values.shape[1:]
    if shape in ((), (1,)):
        return "count"
    if shape[0] != count:
        return ""
    if len(shape) == 2 and shape[1] > 1:
        return "scores"
    has_name = "class" in name.lower() or "label" in name.lower()
    return "classes" if has_name or values.dtype.kind in "iu" else "scores"


def _classes(classes: int | None, categories: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the step that says which category each class is, none where the order is the same.

    Raises MlmsError where that can't be known.
    """
    count = classes or len(names) or len(categories)
    if len(names) == count:
        known = {name.casefold(): name for name in categories}
        found = [known.get(name.casefold()) for name in names]
        if any(found):
            return [] if found == list(categories) else [_classes_step(found)]
    if count == len(categories):
        return []
    if count == len(categories) + 1:
        return [_classes_step([None, *categories])]
    problem = f"the model has {count} classes, and the COCO file {len(categories)} categories"
    advice = "name the file with the model's, one a line in its order: --labels FILE"
    raise MlmsError(f"{problem} ({', '.join(categories[:_SHOWN_CATEGORIES])}); {advice}")


def _classes_step(categories: Sequence[str | None]) -> str:
    """Return the step for the category of each class, None for a class without one."""
    names = ["null" if name is None else scalar(name) for name in categories]
    return f"classes: {{names: [{', '.join(names)}]}}"
