"""The output steps that make detections out of a model's outputs, one picture at a time."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.output_steps import Anchors, Boxes, Columns, MinScore, Nms, Yolo
from pytest_mlms.manifest.schema import Output
from pytest_mlms.manifest.steps import OutputStep
from pytest_mlms.measure.pipeline import observers
from pytest_mlms.measure.pipeline.objects import Detections, Selected, suppressed
from pytest_mlms.measure.pipeline.outputs import dequantize

Size = tuple[int, int]
"""Height and width of the model's input."""


@dataclass(frozen=True, eq=False)
class ReadBoxes:
    """K boxes of a picture as the outputs have them.

    Attributes:
        corners: Left, top, right and bottom in pixels of the model's input (K x 4).
        rows: The index of each box in its output (K).
        scores: Of each box (K), or of each class of each box (K x C); None where another output
            has them.
        classes: Of each box (K); None where another output has them, or ``scores`` is K x C.
        coefficients: Of each box's mask (K x P), for models with prototypes of masks.
    """

    corners: Array
    rows: Array
    scores: Array | None = None
    classes: Array | None = None
    coefficients: Array | None = None


@dataclass(frozen=True)
class BatchPlace:
    """The size of the model's input, and the place of a picture in the batch."""

    size: Size
    number: int


def best_class(read: ReadBoxes) -> ReadBoxes:
    """Return boxes with their best class alone, where they have a score for each."""
    if read.scores is None or read.scores.ndim == 1:
        return read
    classes = read.scores.argmax(axis=1)
    scores = np.take_along_axis(read.scores, classes[:, np.newaxis], axis=1)
    return replace(read, scores=scores[:, 0], classes=classes)


def _corners(numbers: Array, form: str) -> Array:
    """Return boxes of a form (K x 4) as left, top, right and bottom."""
    if form == "xyxy":
        return numbers
    if form == "yxyx":
        return numbers[:, [1, 0, 3, 2]]
    low, sides = np.split(numbers, 2, axis=1)
    if form == "cxcywh":
        low = low - sides / 2
    return np.concatenate([low, low + sides], axis=1)


def box_pixels(numbers: Array, form: str, units: str, place: BatchPlace) -> Array:
    """Return boxes of a form (K x 4) as corners in pixels of the model's input."""
    corners = _corners(numbers, form)
    if units == "pixels":
        return corners
    height, width = place.size
    return corners * np.array([width, height, width, height], np.float64)


def box_table(values: Array) -> Array:
    """Return an output of one picture without the axes of 1 before its last two."""
    shape = values.shape
    if len(shape) < 2 or any(length != 1 for length in shape[:-2]):
        raise ValueError("expected a table of boxes; name another output, or write another step")
    return values.reshape(shape[-2:])


def read_yolo(values: Array, parameters: Yolo, place: BatchPlace) -> ReadBoxes:
    """Return the boxes of a YOLO head, one picture's; raises ValueError for another shape.

    Behind the four columns of the box are the scores, in v5 behind the score of any object, and
    then the coefficients of masks.
    """
    table = box_table(values)
    if parameters.head == "v8":
        table = table.T
    first = 5 if parameters.head == "v5" else 4
    end = table.shape[1] - parameters.coefficients
    if end <= first:
        found = f"a {parameters.head} head has more than {first + parameters.coefficients} numbers"
        raise ValueError(f"{found} a box, and this has {table.shape[1]}; write another head")
    pixels = box_pixels(table[:, :4], "cxcywh", parameters.units, place)
    scores = table[:, first:end]
    if parameters.head == "v5":
        scores = scores * table[:, 4:5]
    read = ReadBoxes(pixels, np.arange(len(pixels)), scores)
    if parameters.coefficients:
        read = replace(read, coefficients=table[:, end:])
    return best_class(read) if parameters.classes == "best" else read


def read_anchors(values: Array, parameters: Anchors, place: BatchPlace) -> ReadBoxes:
    """Return the boxes that a model places by anchors; raises ValueError for another shape."""
    layers = [_grid_boxes(layer.grid, tuple(layer.sizes)) for layer in parameters.layers]
    anchors = np.concatenate(layers)
    table = box_table(values)
    if len(table) != len(anchors) or table.shape[1] < 4:
        expected = f"the layers of the step have {len(anchors)} anchors"
        raise ValueError(f"{expected}, and the output {len(table)} boxes; correct the layers")
    boxes = _boxes_of_offsets(table[:, :4], anchors, parameters)
    pixels = box_pixels(boxes, "cxcywh", "relative", place)
    return ReadBoxes(pixels, np.arange(len(pixels)))


@functools.lru_cache(maxsize=64)  # asked for again for each picture
def _grid_boxes(grid: tuple[int, int], sizes: tuple[tuple[float, float], ...]) -> Array:
    """Return a box of each size at the centre of each cell of a grid of rows x columns."""
    rows, columns = grid
    y, x = np.meshgrid(_cell_centres(rows), _cell_centres(columns), indexing="ij")
    centres = np.stack([x.ravel(), y.ravel()], axis=1)
    each_centre = np.repeat(centres, len(sizes), axis=0)
    each_size = np.tile(sizes, (rows * columns, 1))
    return np.concatenate([each_centre, each_size], axis=1)


def _cell_centres(cells: int) -> Array:
    """Return the centres of the cells of an axis, as shares of its length."""
    return np.asarray((np.arange(cells) + 0.5) / cells)


def _boxes_of_offsets(offsets: Array, anchors: Array, parameters: Anchors) -> Array:
    """Return the centre and the size of the boxes that a model places by A anchors (A x 4).

    ``offsets`` (A x 4) are offsets of the centre and shares of the size, or their logarithms, in
    the order and the scale of the parameters. All are relative to the anchors' sizes.
    """
    if parameters.order == "yxhw":
        offsets = offsets[:, [1, 0, 3, 2]]
    scaled = offsets / np.array(parameters.scale)
    moves, shares = np.split(scaled, 2, axis=1)
    if parameters.size == "exponential":
        shares = np.exp(shares)
    centres, sizes = np.split(anchors, 2, axis=1)
    return np.concatenate([moves * sizes + centres, shares * sizes], axis=1)


def _read_boxes(values: Array, parameters: Boxes, place: BatchPlace) -> ReadBoxes:
    if values.shape[-1:] != (4,) and values.size:
        raise ValueError("expected boxes of 4 numbers; write another step than boxes")
    numbers = values.reshape(-1, 4)
    pixels = box_pixels(numbers, parameters.format, parameters.units, place)
    return ReadBoxes(pixels, np.arange(len(pixels)))


def _read_columns(values: Array, parameters: Columns, place: BatchPlace) -> ReadBoxes:
    count = len(parameters.names)
    if values.shape[-1:] != (count,) and values.size:
        raise ValueError(f"expected rows of the {count} columns that the manifest names")
    table = values.reshape(-1, count)
    columns: dict[str, Array] = dict(zip(parameters.names, table.T, strict=True))
    rows = _used_rows(columns, place.number)
    used = {name: column[rows] for name, column in columns.items()}
    box_names, form = _box_columns(used)
    numbers = np.stack([used[name] for name in box_names], axis=1)
    pixels = box_pixels(numbers, form, parameters.units, place)
    classes = used.get("class")
    if classes is not None:
        classes = classes.astype(np.int64)
    return ReadBoxes(pixels, rows, used.get("score"), classes)


def _used_rows(columns: Mapping[str, Array], number: int) -> Array:
    """Return the indices of the rows of a picture that aren't empty.

    A score of NaN doesn't make a row empty: it is an error of the model, which is reported.
    """
    first, *_ = columns.values()
    used = np.ones(len(first), bool)
    if "image" in columns:
        used &= columns["image"] == number
    if "score" in columns:
        used &= ~(columns["score"] < 0)
    return np.flatnonzero(used)


def _box_columns(columns: Mapping[str, Array]) -> tuple[tuple[str, ...], str]:
    """Return the names of the columns of a box, and the form that they are in."""
    if "cx" in columns:
        return ("cx", "cy", "width", "height"), "cxcywh"
    if "x2" in columns:
        return ("x1", "y1", "x2", "y2"), "xyxy"
    return ("x1", "y1", "width", "height"), "xywh"


DECODERS: Mapping[str, Callable[[Array, Any, BatchPlace], ReadBoxes]] = {
    "boxes": _read_boxes,
    "columns": _read_columns,
    "yolo": read_yolo,
    "anchors": read_anchors,
}
"""Name of the step -> function of an output of one picture; raises ValueError for another shape."""


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
                raise ValueError(
                    f"{wrong} of {count} boxes or scores are NaN or infinite; {advice}"
                )
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
