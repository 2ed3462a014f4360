"""The order of objects that a model sorted by score: rounding decides it where scores are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.agreement import Rounding, Tolerance

Array = NDArray[Any]

_ROWS = ("boxes", "scores", "classes", "masks")
_MOST_EQUAL = 512  # objects of equal scores, of which each is compared with each
_MOST_VALUES = 64  # of an object, by which it is told from others


@dataclass(frozen=True)
class ObjectOrder:
    """The outputs that have a row for each object, in one order; the boxes come first.

    ``scores`` is the one that has their scores: in a ``column``, None where it has nothing else.
    """

    names: Sequence[str]
    scores: str
    column: int | None = None

    @np.errstate(invalid="ignore")  # infinity less infinity: no tie, and no place in an order
    def aligned(
        self,
        ours: Mapping[str, Array],
        expected: Mapping[str, Array],
        tolerance: Tolerance | Rounding,
    ) -> Mapping[str, Array]:
        """Return our outputs, objects whose expected scores are equal in the order expected.

        ``tolerance`` is that of the output with the scores. Outputs of other shapes, and objects
        that aren't sorted by score on both sides, stay as they are.
        """
        values = expected[self.scores].astype(np.float64)
        if self.column is not None and (values.ndim < 2 or values.shape[-1] <= self.column):
            return ours
        scores = self._scores(values)
        if not (scores.ndim and scores.size and self._have_rows(ours, expected, scores.shape)):
            return ours

        allowed = np.broadcast_to(tolerance.atol + tolerance.rtol * np.abs(values), values.shape)
        lists = (-1, scores.shape[-1])
        scores = scores.reshape(lists)
        gaps = 2 * self._scores(allowed).reshape(lists)
        off = np.abs(self._scores(ours[self.scores].astype(np.float64)).reshape(lists) - scores)

        axes = values.ndim if self.column is None else values.ndim - 1
        theirs = [_by_object(expected[name], axes) for name in self.names]
        moved = [_by_object(ours[name], axes).copy() for name in self.names]
        for number, (row, gap) in enumerate(zip(scores, gaps, strict=True)):
            rises = row[1:] - row[:-1] > gap[:-1]
            if rises.any() or (off[number] > gap).any():
                continue
            for tie in _ties(row, gap):
                best = _matched(
                    [objects[number, tie] for objects in theirs],
                    [objects[number, tie] for objects in moved],
                )
                for objects in moved:
                    objects[number, tie] = objects[number, tie][best]

        in_order = zip(self.names, moved, strict=True)
        return {**ours, **{name: each.reshape(ours[name].shape) for name, each in in_order}}

    def _scores(self, values: Array) -> Array:
        return values if self.column is None else values[..., self.column]

    def _have_rows(
        self, ours: Mapping[str, Array], expected: Mapping[str, Array], shape: Sequence[int]
    ) -> bool:
        for name in self.names:
            if name not in ours or name not in expected:
                return False
            if ours[name].shape != expected[name].shape:
                return False
            if expected[name].shape[: len(shape)] != tuple(shape):
                return False
        return expected[self.names[0]].ndim > len(shape)  # else it is a score for each class


def order_of(outputs: Sequence[Output]) -> ObjectOrder | None:
    """Return the order of a manifest's objects; None where there are no objects with scores."""
    for output in outputs:
        for step in output.steps:
            if step.name == "columns" and "score" in step.parameters.names:
                return ObjectOrder([output.name], output.name, step.parameters.names.index("score"))
    scores = [output.name for output in outputs if output.type == "scores"]
    names = [output.name for kind in _ROWS for output in outputs if output.type == kind]
    return ObjectOrder(names, scores[0]) if scores else None


def _by_object(values: Array, axes: int) -> Array:
    """Return values as lists x objects x values of each."""
    lists = int(np.prod(values.shape[: axes - 1]))
    return values.reshape(lists, values.shape[axes - 1], -1)


def _ties(scores: Array, gaps: Array) -> list[slice]:
    """Return the runs of several objects whose scores follow each other within the gaps."""
    apart = np.flatnonzero(~(np.abs(scores[:-1] - scores[1:]) <= gaps[:-1])) + 1
    ends = [0, *apart.tolist(), len(scores)]
    runs = [slice(first, end) for first, end in pairwise(ends)]
    return [run for run in runs if 1 < run.stop - run.start <= _MOST_EQUAL]


def _matched(expected: Sequence[Array], ours: Sequence[Array]) -> list[int]:
    """Return for each expected object the number of the one of ours that is nearest."""
    count = len(expected[0])
    far = np.zeros((count, count))
    for theirs, values in zip(expected, ours, strict=True):
        if theirs.shape[1] <= _MOST_VALUES:
            a, b = theirs.astype(np.float64)[:, np.newaxis], values.astype(np.float64)
            far += np.nan_to_num(np.abs(a - b), nan=np.inf).max(axis=2, initial=0.0)
    found = []
    for row in far:
        best = int(row.argmin())
        found.append(best)
        far[:, best] = np.inf
    return found if len(set(found)) == count else list(range(count))
