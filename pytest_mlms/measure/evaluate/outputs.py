"""Outputs of a model: checks that they are finite, and the part of them that rounding decides."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.errors import OutputError
from pytest_mlms.measure.agent.process import Array, Refused


def finite_rows(values: Array) -> Array:
    """Return for each row whether all of it is finite, as texts are; a single number is a row.

    There may be none, as of a detector that finds nothing.
    """
    rows = np.atleast_1d(values)
    if rows.dtype.kind == "U":
        return np.ones(len(rows), bool)
    return np.asarray(np.isfinite(rows).all(axis=tuple(range(1, rows.ndim))))


def check_finite(name: str, finite: Array, name_of: Callable[[int], str] | None = None) -> None:
    """Raise OutputError where one of ``finite``, a truth value for each input, is False.

    ``name_of`` returns what a message calls an input, beside its number.
    """
    wrong = ~finite
    if not wrong.any():
        return
    first = int(wrong.argmax())
    named = f", {name_of(first)}" if name_of else ""
    count = f"{wrong.sum()} of {len(wrong)} inputs, first for number {first}{named}"
    advice = "check the input's steps, its element type and the model"
    raise OutputError(f"output {name!r} has NaN or infinity for {count}; {advice}")


Batch = Mapping[str, Array]
Axes = Mapping[str, int | None]

_BATCHES = 4
_UNITS = 8  # of rounding, which another order of summation comes to


class NearbyOutputs(NamedTuple):
    """The outputs of a model for a batch once more, and for ones that are off by rounding.

    Both are empty where the batch has nothing that could be rounded.
    """

    again: Sequence[Batch] = ()
    rounded: Sequence[Batch] = ()

    def of(self, name: str) -> tuple[list[Array], list[Array]]:
        """Return both for one output."""
        again, rounded = ([each[name] for each in part if name in each] for part in self)
        return again, rounded

    def by(self, change: Callable[[Batch], Batch]) -> NearbyOutputs:
        """Return the same with the outputs of each batch changed."""
        return NearbyOutputs(*(list(map(change, part)) for part in self))


def nearby_outputs(
    predict: Callable[[Batch], Batch], batch: Batch, axes: Axes | None = None
) -> NearbyOutputs:
    """Return a model's outputs for a batch and for batches near it, unless it refuses these.

    ``axes`` are as in ``rounded_inputs``.
    """
    again = []
    rounded = []
    for inputs in rounded_inputs(batch, axes):
        again.append(predict(batch))
        with contextlib.suppress(Refused):
            rounded.append(predict(inputs))
    return NearbyOutputs(again, rounded)


def rounded_inputs(batch: Batch, axes: Axes | None = None) -> Iterator[dict[str, Array]]:
    """Yield batches whose floats are off by a few units of their rounding, each its own way.

    What a model changes by that much is decided by the order of its sums. Whole numbers are exact:
    a float may be a token, a pixel or a mask. But an input that is one value all over is none of
    these, and norms divide it by what rounding leaves of its variance: it is off by units of 1 at
    least, as what a layer adds to it may be. ``axes`` has the axis of the batch by input, the first
    where one is left out; None where an input has none.
    """
    blank = _blank(batch, axes or {})
    sizes = {name: _sizes(values, blank[name]) for name, values in batch.items()}
    if not any(each.any() for each in sizes.values()):
        return
    for number in range(_BATCHES):
        random = np.random.default_rng(number)
        yield {name: _rounded(values, sizes[name], random) for name, values in batch.items()}


def _rounded(values: Array, sizes: Array, random: np.random.Generator) -> Array:
    if not sizes.any():
        return values
    off = _UNITS * np.finfo(values.dtype).eps * random.choice([-1.0, 1.0], values.shape)
    return np.asarray(values + off * sizes, values.dtype)


def _sizes(values: Array, blank: Array) -> Array:
    """Return the sizes of which values are off by a share; 0 for exact ones."""
    exact = _is_exact(values)
    if exact.all() and not blank.any():
        return np.zeros(())
    sizes = np.where(exact, 0.0, np.abs(values))
    return np.where(blank, np.maximum(np.abs(values), 1), sizes)


def _is_exact(values: Array) -> Array:
    if values.dtype.kind != "f":
        return np.ones(values.shape, bool)
    return np.asarray((values == np.trunc(values)) | ~np.isfinite(values))


def _blank(batch: Batch, axes: Axes) -> dict[str, Array]:
    """Return where inputs are floats of one value alone, in arrays that fit theirs."""
    rows = {name: _as_rows(values, axes.get(name, 0)) for name, values in batch.items()}
    same = _blank_rows(list(rows.values()))
    found: dict[str, Array] = {}
    for name, values in batch.items():
        shape = [1] * values.ndim
        if len(rows[name]) == len(same) > 1:
            shape[axes.get(name, 0) or 0] = -1
            found[name] = same.reshape(shape)
        else:
            found[name] = np.reshape(same.all(), shape)
    return found


def _blank_rows(inputs: Sequence[Array]) -> Array:
    """Return which rows are floats of one value alone in all inputs; [False] where none can be."""
    counts = {len(rows) for rows in inputs} - {1}
    are_floats = all(rows.dtype.kind == "f" for rows in inputs)
    have_several = any(rows.shape[1] > 1 for rows in inputs)
    same = np.array([len(counts) <= 1 and are_floats and have_several])
    if same.all():
        for rows in inputs:
            same = same & _is_one_value(rows)
    return same


def _is_one_value(rows: Array) -> Array:
    """Return which rows have finite values that differ by less than any normal number."""
    if not rows.size:
        return np.zeros(len(rows), bool)
    with np.errstate(invalid="ignore"):  # infinity less infinity is NaN, which is no spread
        spread = np.ptp(rows.astype(np.float64), axis=1)
    return np.asarray(spread <= np.finfo(rows.dtype).tiny)


def _as_rows(values: Array, axis: int | None) -> Array:
    """Return values as a row an input; one row where there is no axis of inputs."""
    if axis is None or not values.size or not values.ndim:
        return values.reshape(1, -1)
    return np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
