"""The output steps that make detections out of a model's outputs, one picture at a time.

The first step of the output of type boxes says what its numbers are; further outputs have the
scores, the classes, the number of boxes and the masks. Boxes are then corners in pixels of the
model's input, and the other steps choose among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.output_steps import Boxes, MinScore, Nms
from pytest_mlms.manifest.schema import Output
from pytest_mlms.manifest.steps import OutputStep
from pytest_mlms.measure.pipeline import observers
from pytest_mlms.measure.pipeline.box_decoding import (
    DECODERS,
    BatchPlace,
    ReadBoxes,
    Size,
    best_class,
)
from pytest_mlms.measure.pipeline.objects import Detections, Selected, suppressed
from pytest_mlms.measure.pipeline.outputs import dequantize

Array = NDArray[Any]


class BoxReader:
    """Reader of the detections in a model's outputs.

    ``outputs`` are a manifest's outputs of an object's types: one of type boxes, and at most one of
    each other type.
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        self._by_type: dict[str, Output] = {output.type: output for output in outputs}
        self._quantised = {
            output.name: output.steps[0].parameters
            for output in outputs
            if output.steps and output.steps[0].name == "dequantize"
        }
        steps = [step for step in self._by_type["boxes"].steps if step.name != "dequantize"]
        if steps and steps[0].name in DECODERS:
            self._decoder = steps[0]
            self._choices = steps[1:]
        else:
            self._decoder = OutputStep(boxes=Boxes())
            self._choices = steps

    def read(self, row: Mapping[str, Array], size: Size, number: int = 0) -> Detections:
        """Return the detections of one picture, with boxes in pixels of the model's input.

        ``row`` has the outputs of the picture by name, without the axis of the batch, and
        ``number`` is its place in the batch. Raises OutputError for outputs of another shape.
        """
        name = self._by_type["boxes"].name
        decoder = self._decoder
        row = dict(row)
        for quantised, parameters in self._quantised.items():
            with observers.step("dequantize"):
                row[quantised] = dequantize(row[quantised], parameters)
        try:
            with observers.step(decoder.name):
                values = row[name].astype(np.float64)
                place = BatchPlace(size, number)
                read = DECODERS[decoder.name](values, decoder.parameters, place)
            read = self._with_other_outputs(read, row)
            read = _checked(read)
        except ValueError as error:
            shapes = ", ".join(f"{key!r} {values.shape}" for key, values in row.items())
            raise OutputError(f"output {name!r}: {error} (of one input: {shapes})") from error
        found = _detections(read, self._masks(row))
        for step in self._choices:
            choose = _CHOICES.get(step.name)
            if choose:
                with observers.step(step.name):
                    found = choose(found, step.parameters)
        return found

    def _with_other_outputs(self, read: ReadBoxes, row: Mapping[str, Array]) -> ReadBoxes:
        """Return the boxes with the scores and classes that other outputs have."""
        scores = self._scores(row, len(read.corners))
        if scores is not None:
            read = replace(read, scores=scores)
        classes = self._values(row, "classes")
        if classes is not None:
            flat, boxes = classes.reshape(-1), len(read.corners)
            if len(flat) != boxes:
                found = f"there are {len(flat)} classes for {boxes} boxes"
                raise ValueError(f"{found}; name other outputs")
            read = replace(read, classes=flat.astype(np.int64))
        of_scores = self._by_type.get("scores")
        if of_scores and "best_class" in [step.name for step in of_scores.steps]:
            read = best_class(read)
        count = self._values(row, "count")
        if count is not None:
            read = _first(read, _number_in(count))
        return read

    def _scores(self, row: Mapping[str, Array], boxes: int) -> Array | None:
        """Return the scores of each box (K), or of each of its classes (K x C)."""
        values = self._values(row, "scores")
        if values is None:
            return None
        scores = values.astype(np.float64)
        scores = scores.reshape(boxes, -1) if scores.size else np.zeros((boxes, 0))
        for step in self._by_type["scores"].steps:
            change = _SCORES.get(step.name)
            if change:
                with observers.step(step.name):
                    scores = change(scores, step.parameters)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def _masks(self, row: Mapping[str, Array]) -> Array | None:
        """Return the values of the masks (K x height x width)."""
        values = self._values(row, "masks")
        if values is None:
            return None
        if values.ndim < 3:
            raise OutputError(f"masks of one input are {values.shape}; expected K x height x width")
        return values.reshape(-1, *values.shape[-2:])

    def _values(self, row: Mapping[str, Array], kind: str) -> Array | None:
        output = self._by_type.get(kind)
        return None if output is None else row[output.name]


def _checked(read: ReadBoxes) -> ReadBoxes:
    """Return what was read; raises ValueError for boxes without scores, NaN and infinity."""
    if read.scores is None:
        advice = "name an output of type scores, or a step that reads them (columns, yolo)"
        raise ValueError(f"its boxes have no scores; {advice}")
    count = len(read.corners)
    finite = np.isfinite(read.corners).all(axis=1)
    finite_scores = np.isfinite(read.scores)
    finite &= finite_scores if finite_scores.ndim == 1 else finite_scores.all(axis=1)
    wrong = count - int(finite.sum())
    if wrong:
        advice = "check the input's steps, its element type and the model"
        raise ValueError(f"{wrong} of {count} boxes or scores are NaN or infinite; {advice}")
    return read


def _detections(read: ReadBoxes, masks: Array | None) -> Detections:
    """Return a detection for each box, or for each class of each box."""
    scores = read.scores
    assert scores is not None, "boxes are checked to have scores"
    classes = read.classes
    chosen = np.arange(len(read.corners))
    if scores.ndim == 2:
        count = scores.shape[1]
        chosen = np.repeat(chosen, count)
        classes = np.tile(np.arange(count), len(read.corners))
        scores = scores.reshape(-1)
    elif classes is None:
        classes = np.zeros(len(chosen), np.int64)
    return Detections(read.corners[chosen], scores, classes, _masks_of(read, masks, chosen))


def _masks_of(read: ReadBoxes, masks: Array | None, chosen: Array) -> Sequence[Array] | None:
    """Return the masks of the boxes at ``chosen``."""
    if masks is None:
        return None
    if read.coefficients is None:
        return Selected(masks, read.rows[chosen])
    if read.coefficients.shape[1] != len(masks):
        found = f"the boxes have {read.coefficients.shape[1]} coefficients"
        raise OutputError(f"{found}, and there are {len(masks)} prototypes; correct the step yolo")
    return _PrototypeMasks(masks, read.coefficients[chosen])


class _PrototypeMasks(Sequence[Array]):
    """Masks that are sums of prototypes; each is computed when it is asked for."""

    def __init__(self, prototypes: Array, coefficients: Array) -> None:
        self._prototypes = prototypes
        self._coefficients = coefficients

    def __len__(self) -> int:
        return len(self._coefficients)

    def __getitem__(self, index: Any) -> Any:
        logits = np.tensordot(self._coefficients[index], self._prototypes, axes=1)
        return scipy.special.expit(logits)


def _number_in(count: Array) -> int:
    """Return the only number of an output of type count; raises ValueError for any other."""
    if count.size != 1 or not 0 <= count.item() < math.inf:
        found = np.array2string(count, threshold=4)
        raise ValueError(f"the output of type count has {found}, not a number of boxes; correct it")
    return int(count.item())


def _first(read: ReadBoxes, count: int) -> ReadBoxes:
    """Return the first ``count`` boxes; the rest of the output is padding."""
    scores = None if read.scores is None else read.scores[:count]
    classes = None if read.classes is None else read.classes[:count]
    coefficients = None if read.coefficients is None else read.coefficients[:count]
    return ReadBoxes(read.corners[:count], read.rows[:count], scores, classes, coefficients)


def _sigmoid(scores: Array, parameters: Any) -> Array:
    if parameters.clip is not None:
        scores = np.clip(scores, -parameters.clip, parameters.clip)
    return np.asarray(scipy.special.expit(scores))


def _softmax(scores: Array, parameters: Any) -> Array:
    return np.asarray(scipy.special.softmax(scores, axis=1))


def _drop_background(scores: Array, parameters: Any) -> Array:
    if parameters.index >= scores.shape[1]:
        found = f"the scores have {scores.shape[1]} classes"
        raise ValueError(f"{found}, and the background is number {parameters.index}; correct it")
    return np.delete(scores, parameters.index, axis=1)


_SCORES: Mapping[str, Callable[[Array, Any], Array]] = {
    "sigmoid": _sigmoid,
    "softmax": _softmax,
    "drop_background": _drop_background,
}


def _min_score(found: Detections, parameters: MinScore) -> Detections:
    return found.take(np.flatnonzero(found.scores >= parameters.score))


def _nms(found: Detections, parameters: Nms) -> Detections:
    classes = found.classes if parameters.class_aware else None
    kept = suppressed(found.boxes, found.scores, parameters.iou, parameters.most, classes)
    return found.take(kept)


_CHOICES: Mapping[str, Callable[[Detections, Any], Detections]] = {
    "min_score": _min_score,
    "nms": _nms,
}
