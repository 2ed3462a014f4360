"""The answers of a model for one input: its outputs after the output steps of its manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.output_steps import Classes, Mask
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.agreement import are_probabilities
from pytest_mlms.measure.evaluate.closeness import check_finite, finite_rows
from pytest_mlms.measure.evaluate.rows import BatchRows
from pytest_mlms.measure.evaluate.tasks.classification import check_names, scores_of
from pytest_mlms.measure.evaluate.tasks.labels import resized_mask
from pytest_mlms.measure.evaluate.tasks.object_detection import mask_step, with_masks
from pytest_mlms.measure.evaluate.tasks.question_answering import SpanScorer
from pytest_mlms.measure.pipeline import (
    Dataset,
    class_numbers,
    read_labels,
    table_of,
    top_k,
)
from pytest_mlms.measure.pipeline.coco import Category, CocoFile, CocoLabels, Picture
from pytest_mlms.measure.pipeline.detected import PictureDetector
from pytest_mlms.measure.pipeline.objects import decode_mask
from pytest_mlms.measure.pipeline.outputs import decode_texts, decode_tokens, steps_done
from pytest_mlms.measure.pipeline.step_files import read_names

Array = NDArray[Any]

_RANKED = 5  # classes, where the manifest doesn't say how many
_MOST_CLASSES = 10_000  # of objects, where the manifest has no names
_READ = ("classification", "text", "tokens")  # types that say something without steps
_OF_OBJECTS = ("boxes", "scores", "classes", "count", "masks")


@dataclass(frozen=True)
class RankedLabel:
    """A class that a model may see in an input.

    ``label`` is its name, or its number as a text where the manifest has no names. ``score`` is the
    model's after its steps, a share where ``is_probability``; None where it gives the class alone.
    """

    label: str
    index: int
    score: float | None
    is_probability: bool = False


class DetectedObject(NamedTuple):
    """An object in a picture.

    ``box`` is left, top, right and bottom in pixels of the picture, upright. ``mask`` has its
    pixels (height x width of the picture), None for a model without masks.
    """

    label: str
    score: float
    box: tuple[float, float, float, float]
    mask: NDArray[np.bool_] | None = None


Answer: TypeAlias = tuple[RankedLabel, ...] | tuple[DetectedObject, ...] | str | Array
"""Classes or objects, the best first; a text; or an array without the axis of the batch: a mask (H
x W), an image (H x W x C), ids of tokens, or the numbers of a tensor."""


def answers_of(
    outputs: Sequence[Output], dataset: Dataset, rows: BatchRows, own: Mapping[str, Array]
) -> dict[str, Answer]:
    """Return the answer of each output by its name, for the only element of a dataset.

    ``own`` are the model's own outputs, which stay where there are no steps. Objects are under the
    name of the boxes, and a span's text under that of its start. Files of steps are local ones.
    Raises OutputError and DatasetError as tasks do.
    """
    types = {output.type: output for output in outputs}
    joined = {"boxes": _OF_OBJECTS, "span_start": ("span_end",)}
    parts = {part for kind, others in joined.items() if kind in types for part in others}
    found: dict[str, Answer] = {}
    for output in outputs:
        if output.type == "boxes":
            found[output.name] = _objects(outputs, dataset, rows)
        elif output.type == "span_start" and "span_end" in types:
            scorer = SpanScorer.of(output, types["span_end"], dataset)
            logits = {spec.name: rows.rows(spec.name) for spec in (output, types["span_end"])}
            (found[output.name],) = scorer.texts(logits, range(1))
        elif output.type not in parts:
            is_plain = output.type not in _READ and not output.steps
            found[output.name] = own[output.name] if is_plain else _answer(output, dataset, rows)
    return found


def _answer(output: Output, dataset: Dataset, rows: BatchRows) -> Answer:
    """Return the answer of an output by itself."""
    if output.type == "classification":
        return _ranked(output, rows.rows(output.name))
    if output.type == "text":
        return decode_texts(rows.rows(output.name), output)[0]
    if output.type == "tokens":
        return decode_tokens(rows.rows(output.name), output)[0]
    values = np.asarray(steps_done(rows.rows(output.name), output)[0])
    is_resized = any(
        isinstance(step.parameters, Mask) and step.parameters.resize for step in output.steps
    )
    if is_resized and any(spec.type == "image" for spec in dataset.inputs):
        return resized_mask(values, dataset.picture_size(0))
    return values.squeeze() if output.type == "mask" and values.ndim > 2 else values


def _ranked(output: Output, values: Array) -> tuple[RankedLabel, ...]:
    """Return the best classes, in the order of the model's own values."""
    file = output.top_k.labels if output.top_k else None
    if output.has_class_numbers:
        numbers = class_numbers(output, values, 1)
        names = read_labels(Path(file)) if file else []
        check_names(output, names, numbers)
        (number,) = numbers.tolist()
        return (RankedLabel(names[number] if names else str(number), number, None),)
    table = table_of(output, values, 1)
    check_finite(output.name, finite_rows(table))
    scores = scores_of(table, output)
    classes = table.shape[1]
    names = read_labels(Path(file), classes) if file else list(map(str, range(classes)))
    are_shares = are_probabilities(scores)
    best = top_k(table[0], output.top_k.k if output.top_k else _RANKED).tolist()
    ranked = (
        RankedLabel(names[index], index, float(scores[0, index]), are_shares) for index in best
    )
    return tuple(ranked)


def _objects(
    outputs: Sequence[Output], dataset: Dataset, rows: BatchRows
) -> tuple[DetectedObject, ...]:
    """Return the objects in the only picture of a dataset, read as those of labelled pictures."""
    chosen = [output for output in outputs if output.type in _OF_OBJECTS]
    height, width = dataset.picture_size(0)
    picture = Picture(0, "", height, width, "")
    labels = CocoLabels(CocoFile([picture], _categories(chosen), []))
    detector = PictureDetector(chosen, replace(dataset, labels=labels))
    row = {output.name: rows.rows(output.name)[0] for output in chosen}
    detected = detector.detect(row, 0, 0)
    found = detected.detections
    masks = None
    if found.masks is not None:
        masks = with_masks(detected, mask_step(chosen)).masks
    objects = []
    for number in np.argsort(-found.scores, kind="stable").tolist():
        objects.append(
            DetectedObject(
                label=labels.categories[found.classes[number]].name,
                score=float(found.scores[number]),
                box=tuple(found.boxes[number].tolist()),
                mask=None if masks is None else decode_mask(masks[number]).astype(bool),
            )
        )
    return tuple(objects)


def _categories(outputs: Sequence[Output]) -> list[Category]:
    """Return the categories that a manifest's classes stand for; numbers where it has no names."""
    steps = [step.parameters for output in outputs for step in output.steps]
    classes = next((one for one in steps if isinstance(one, Classes)), None)
    names: Sequence[str | None] = ()
    if classes is not None and classes.labels is not None:
        names = read_names(Path(classes.labels), "name")
    elif classes is not None and classes.names is not None:
        names = classes.names
    if names:
        known = dict.fromkeys(name for name in names if name is not None)
        return [Category(number, name) for number, name in enumerate(known)]
    ids: Sequence[int | None] = range(_MOST_CLASSES)
    if classes is not None and isinstance(classes.ids, list):
        ids = classes.ids
    return [Category(number, str(number)) for number in sorted({i for i in ids if i is not None})]
