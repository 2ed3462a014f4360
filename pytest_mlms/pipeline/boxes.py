"""The output steps that make detections out of a model's outputs, one picture at a time.

The first step of the output of type boxes says what its numbers are; further outputs have the
scores, the classes, the number of boxes and the masks. Boxes are then corners in pixels of the
model's input, and the other steps choose among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from pytest_mlms.errors import OutputError
from pytest_mlms.manifest.box_steps import Anchors, Boxes, Columns, MinScore, Nms, Yolo
from pytest_mlms.manifest.schema import Output
from pytest_mlms.manifest.steps import OutputStep
from pytest_mlms.pipeline import observers
from pytest_mlms.pipeline.nms import suppressed
from pytest_mlms.pipeline.objects import Detections

__all__ = ["BoxReader"]

Array = NDArray[Any]
Size = tuple[int, int]
"""Height and width of the model's input."""


@dataclass(frozen=True, eq=False)
class _Read:
    """What the outputs say of K boxes of a picture.

    Attributes:
        corners: Left, top, right and bottom in pixels of the model's input (K x 4).
        scores: Of each box (K), or of each class of each box (K x C); None where another output
            has them.
        classes: Of each box (K); None where another output has them, or ``scores`` is K x C.
        rows: The index of each box in its output (K).
        coefficients: Of each box's mask (K x P), for models with prototypes of masks.
    """

    corners: Array
    scores: Array | None
    classes: Array | None
    rows: Array
    coefficients: Array | None = None


class BoxReader:
    """Reader of the detections in a model's outputs.

    ``outputs`` are those of a manifest with an object's types: one of type boxes, and at most one
    of each other type.
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        self._by_type: dict[str, Output] = {output.type: output for output in outputs}
        boxes = self._by_type["boxes"]
        steps = boxes.steps
        if steps and steps[0].name in _DECODERS:
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
        try:
            read = self._decoded(row[name], size, number)
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

    def _decoded(self, values: Array, size: Size, number: int) -> _Read:
        step = self._decoder
        with observers.step(step.name):
            decode = _DECODERS[step.name]
            return decode(values.astype(np.float64), step.parameters, _Place(size, number))

    def _with_other_outputs(self, read: _Read, row: Mapping[str, Array]) -> _Read:
        """Return the boxes with the scores and classes that other outputs have."""
        scores = self._scores(row, len(read.corners))
        if scores is not None:
            read = replace(read, scores=scores)
        classes = self._values(row, "classes")
        if classes is not None:
            flat = classes.reshape(-1)
            _check_length("classes", flat, len(read.corners))
            read = replace(read, classes=flat.astype(np.int64))
        if "best_class" in self._step_names("scores"):
            read = _best_class(read)
        count = self._values(row, "count")
        if count is not None:
            read = _first(read, int(count.reshape(-1)[0]))
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

    def _step_names(self, kind: str) -> list[str]:
        output = self._by_type.get(kind)
        return [] if output is None else [step.name for step in output.steps]


@dataclass(frozen=True)
class _Place:
    """The size of the model's input, and the place of a picture in the batch."""

    size: Size
    number: int


def _check_length(what: str, values: Array, boxes: int) -> None:
    if len(values) != boxes:
        raise ValueError(f"there are {len(values)} {what} for {boxes} boxes; name other outputs")


def _checked(read: _Read) -> _Read:
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


def _detections(read: _Read, masks: Array | None) -> Detections:
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


def _masks_of(read: _Read, masks: Array | None, chosen: Array) -> Sequence[Array] | None:
    """Return the masks of the boxes at ``chosen``."""
    if masks is None:
        return None
    if read.coefficients is None:
        return _RowMasks(masks, read.rows[chosen])
    if read.coefficients.shape[1] != len(masks):
        found = f"the boxes have {read.coefficients.shape[1]} coefficients"
        raise OutputError(f"{found}, and there are {len(masks)} prototypes; correct the step yolo")
    return _PrototypeMasks(masks, read.coefficients[chosen])


class _RowMasks(Sequence[Array]):
    """The masks of some rows of an output; none is copied."""

    def __init__(self, masks: Array, rows: Array) -> None:
        self._masks = masks
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._masks[self._rows[index]]


class _PrototypeMasks(Sequence[Array]):
    """Masks that are sums of prototypes; each is computed when it is asked for."""

    def __init__(self, prototypes: Array, coefficients: Array) -> None:
        self._prototypes = prototypes
        self._coefficients = coefficients

    def __len__(self) -> int:
        return len(self._coefficients)

    def __getitem__(self, index: Any) -> Any:
        return expit(np.tensordot(self._coefficients[index], self._prototypes, axes=1))


def _best_class(read: _Read) -> _Read:
    if read.scores is None or read.scores.ndim == 1:
        return read
    best = read.scores.argmax(axis=1)
    scores = np.take_along_axis(read.scores, best[:, None], axis=1)[:, 0]
    return replace(read, scores=scores, classes=best)


def _first(read: _Read, count: int) -> _Read:
    """Return the first ``count`` boxes; the rest of the output is padding."""
    scores = None if read.scores is None else read.scores[:count]
    classes = None if read.classes is None else read.classes[:count]
    coefficients = None if read.coefficients is None else read.coefficients[:count]
    return _Read(read.corners[:count], scores, classes, read.rows[:count], coefficients)


def _corners(numbers: Array, form: str) -> Array:
    """Return boxes of a form (K x 4) as left, top, right and bottom."""
    if form == "xyxy":
        return numbers
    if form == "yxyx":
        return numbers[:, [1, 0, 3, 2]]
    position = numbers[:, :2]
    sides = numbers[:, 2:]
    low = position - sides / 2 if form == "cxcywh" else position
    return np.concatenate([low, low + sides], axis=1)


def _in_pixels(corners: Array, units: str, size: Size) -> Array:
    if units == "pixels":
        return corners
    height, width = size
    return corners * np.array([width, height, width, height], np.float64)


def _table(values: Array) -> Array:
    """Return an output of one picture without the axes of 1 before its last two."""
    rows, columns = values.shape[-2:]
    return values.reshape(rows, columns)


def _read_boxes(values: Array, parameters: Boxes, place: _Place) -> _Read:
    if values.shape[-1:] != (4,) and values.size:
        raise ValueError("expected boxes of 4 numbers; write another step than boxes")
    corners = _corners(values.reshape(-1, 4), parameters.format)
    pixels = _in_pixels(corners, parameters.units, place.size)
    return _Read(pixels, None, None, np.arange(len(pixels)))


def _read_columns(values: Array, parameters: Columns, place: _Place) -> _Read:
    names = parameters.names
    if values.shape[-1:] != (len(names),) and values.size:
        raise ValueError(f"expected rows of the {len(names)} columns that the manifest names")
    table = values.reshape(-1, len(names))
    columns: dict[str, Array] = {name: table[:, index] for index, name in enumerate(names)}
    used = np.ones(len(table), bool)
    if "image" in columns:
        used &= columns["image"] == place.number
    if "score" in columns:
        used &= columns["score"] >= 0
    rows = np.flatnonzero(used)
    box_names, form = _box_columns(columns)
    numbers = np.stack([columns[name][rows] for name in box_names], axis=1)
    corners = _in_pixels(_corners(numbers, form), parameters.units, place.size)
    scores = columns["score"][rows] if "score" in columns else None
    classes = columns["class"][rows].astype(np.int64) if "class" in columns else None
    return _Read(corners, scores, classes, rows)


def _box_columns(columns: Mapping[str, Array]) -> tuple[tuple[str, ...], str]:
    """Return the names of the columns of a box, and the form that they are in."""
    if "cx" in columns:
        return ("cx", "cy", "width", "height"), "cxcywh"
    if "x2" in columns:
        return ("x1", "y1", "x2", "y2"), "xyxy"
    return ("x1", "y1", "width", "height"), "xywh"


def _read_yolo(values: Array, parameters: Yolo, place: _Place) -> _Read:
    table = _table(values)
    if parameters.head == "v8":
        table = table.T
    first_score = 5 if parameters.head == "v5" else 4
    last_score = table.shape[1] - parameters.coefficients
    if last_score <= first_score:
        least = first_score + parameters.coefficients
        found = f"a {parameters.head} head has more than {least} numbers a box"
        raise ValueError(f"{found}, and this has {table.shape[1]}; write another head")
    scores = table[:, first_score:last_score]
    coefficients = table[:, last_score:] if parameters.coefficients else None
    if parameters.head == "v5":
        scores = scores * table[:, 4:5]
    corners = _corners(table[:, :4], "cxcywh")
    pixels = _in_pixels(corners, parameters.units, place.size)
    read = _Read(pixels, scores, None, np.arange(len(pixels)), coefficients)
    return _best_class(read) if parameters.classes == "best" else read


def _read_anchors(values: Array, parameters: Anchors, place: _Place) -> _Read:
    anchors = _anchor_boxes(parameters)
    found = _table(values)
    if len(found) != len(anchors) or found.shape[1] < 4:
        expected = f"the layers of the step have {len(anchors)} anchors"
        raise ValueError(f"{expected}, and the output {len(found)} boxes; correct the layers")
    numbers = found[:, :4]
    if parameters.order == "yxhw":
        numbers = numbers[:, [1, 0, 3, 2]]
    numbers = numbers / np.array(parameters.scale)
    centres = numbers[:, :2] * anchors[:, 2:] + anchors[:, :2]
    shares = np.exp(numbers[:, 2:]) if parameters.size == "exponential" else numbers[:, 2:]
    boxes = np.concatenate([centres, shares * anchors[:, 2:]], axis=1)
    corners = _in_pixels(_corners(boxes, "cxcywh"), "relative", place.size)
    return _Read(corners, None, None, np.arange(len(corners)))


def _anchor_boxes(parameters: Anchors) -> Array:
    """Return the centre and the size of all anchors, relative to the input (A x 4)."""
    layers = []
    for layer in parameters.layers:
        rows, columns = layer.grid
        sizes = np.array(layer.sizes, np.float64)
        y, x = np.meshgrid(np.arange(rows), np.arange(columns), indexing="ij")
        centres = np.stack([(x + 0.5) / columns, (y + 0.5) / rows], axis=2).reshape(-1, 2)
        repeated = np.repeat(centres, len(sizes), axis=0)
        layers.append(np.concatenate([repeated, np.tile(sizes, (len(centres), 1))], axis=1))
    return np.concatenate(layers)


_DECODERS: Mapping[str, Callable[[Array, Any, _Place], _Read]] = {
    "boxes": _read_boxes,
    "columns": _read_columns,
    "yolo": _read_yolo,
    "anchors": _read_anchors,
}


def _sigmoid(scores: Array, parameters: Any) -> Array:
    if parameters.clip is not None:
        scores = np.clip(scores, -parameters.clip, parameters.clip)
    return np.asarray(expit(scores))


def _softmax(scores: Array, parameters: Any) -> Array:
    return np.asarray(softmax(scores, axis=1))


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
