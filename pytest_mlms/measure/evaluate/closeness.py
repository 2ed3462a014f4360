"""The one comparison of two outputs of a model for the same inputs: which count as the same.

Outputs are checked to be finite, and the part that rounding decides is known by nearby inputs.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.agent.process import Array, Refused

if TYPE_CHECKING:
    from pytest_mlms.measure.evaluate.objects import ObjectOrder


_LEAST_SHARE = 1e-4
"""The change by another order of summation or other kernels in float32 through a model."""

_GPU_SHARE = 2.0**-8
"""The same where GPUs multiply float32 as TF32, by its unit of rounding (2^-11) times eight."""

_EPSILONS = 8

_LEAST_FILL = 1e4
_FILL_RATIO = 1e2  # to the largest result
_LARGEST = [65504.0, 2.0**128 - 2.0**120, *(float(np.finfo(each).max) for each in "fd")]
_FILLS = np.array(
    [digit * 10.0**power for power in range(4, 39) for digit in range(1, 10)]
    + [*_LARGEST, *(value / 2 for value in _LARGEST)]
)
"""Fillings of masks: round numbers, and the largest of float16, bfloat16 and longer."""

_NUMBERS = "fiubcV"
"""Kinds of types that are numbers; V is bfloat16's."""


class Tolerance(NamedTuple):
    """The relative and the absolute difference that are taken for rounding."""

    rtol: float
    atol: float


class Rounding(NamedTuple):
    """The absolute difference that is taken for rounding, in an array that fits the values."""

    atol: Array
    rtol: float = 0.0


class ElementDifferences(NamedTuple):
    """Differences of each element: |a - b|, |a - b| / |b|, and |a - b| / (atol + rtol |b|).

    The relative one is NaN where b is 0. ``deviation`` is at most 1 exactly where numpy.isclose
    holds.
    """

    absolute: Array
    relative: Array
    deviation: Array


def differences(
    ours: Array, reference: Array, tolerance: Tolerance | Rounding
) -> ElementDifferences:
    """Return the differences of each element from the reference.

    Equal infinities do not differ. NaN differs by infinity. Whole numbers and texts have no
    rounding: they deviate by infinity where they are not equal, but for an ``atol`` of 1 or more.
    """
    same = ours == reference
    if reference.dtype.kind not in _NUMBERS or ours.dtype.kind not in _NUMBERS:
        infinite = np.where(same, 0.0, np.inf)
        return ElementDifferences(infinite, infinite, infinite)
    kind = np.complex128 if "c" in (ours.dtype.kind, reference.dtype.kind) else np.float64
    a = ours.astype(kind)
    b = reference.astype(kind)
    size = np.abs(b)
    is_whole = reference.dtype.kind in "iub"
    with np.errstate(all="ignore"):  # infinities, and divisions by 0
        distance = _whole_distance(ours, reference) if is_whole else np.abs(a - b)
        allowed = tolerance.atol + tolerance.rtol * size
        if is_whole:
            allowed = np.floor(tolerance.atol)
        absolute = _infinite_where_unknown(distance, same)
        quotient = _infinite_where_unknown(absolute / size, same)
        deviation = _infinite_where_unknown(absolute / allowed, same)
    relative = np.where(size == 0, np.nan, quotient)
    return ElementDifferences(absolute, relative, deviation)


def _whole_distance(ours: Array, reference: Array) -> Array:
    """Return |a - b| of whole numbers, which float64 can't tell apart from 2^53 on."""
    kind = np.result_type(ours, reference)
    if kind.kind not in "iub":
        return np.abs(ours.astype(np.float64) - reference)
    wide = np.uint64 if kind.kind == "u" else np.int64
    a, b = (each.astype(wide).view(np.uint64) for each in (ours, reference))
    return np.where(ours > reference, a - b, b - a).astype(np.float64)


def _infinite_where_unknown(values: Array, same: Array) -> Array:
    """Return the values, 0 for equal elements, and infinity for NaN."""
    known = np.nan_to_num(values, nan=np.inf, posinf=np.inf)
    return np.where(same, 0.0, known)


def rounding_share(kind: np.dtype[Any], device: str = "cpu") -> float:
    """Return the share of the size of like values that is taken for rounding.

    It is 0 for whole numbers, whose answers are exact.
    """
    if kind.kind in "iubUSO":
        return 0.0
    least = _LEAST_SHARE if device == "cpu" else _GPU_SHARE
    return max(least, _EPSILONS * _epsilon(kind))


def _epsilon(kind: np.dtype[Any]) -> float:
    try:
        return float(np.finfo(kind).eps)
    except ValueError:  # bfloat16 and shorter ones, which numpy does not know
        return 2.0 ** (-7 if kind.itemsize > 1 else -2)


def unlike_axis(output: Output, task: str) -> int | None:
    """Return the axis of an output along which values are unlike each other, None without one."""
    for step in output.steps:
        if step.name == "columns":
            return -1
        if step.name == "yolo":
            return -1 if step.parameters.head == "v5" else -2
    return -1 if task == "regression" else None


def problem_of(name: str, ours: Array | None, expected: Array, other: str) -> str:
    """Return why two outputs can't be the same, "" where only their values can differ.

    ``other`` is what the message calls the side that was expected.
    """
    if ours is None:
        return f"{name!r} is absent, and {expected.shape} of {other}"
    if ours.shape != expected.shape:
        return f"{name!r} is {ours.shape}, and {expected.shape} of {other}"
    if not are_of_one_type(ours, expected):
        return f"{name!r} is {ours.dtype}, and {expected.dtype} of {other}"
    return ""


def are_of_one_type(ours: Array, expected: Array) -> bool:
    """Return whether arrays are of one type; texts are, whatever the longest of an array."""
    return ours.dtype == expected.dtype or ours.dtype.kind == expected.dtype.kind == "U"


class Closeness(NamedTuple):
    """How far an output is from the expected one, for each input.

    ``deviation`` is a multiple of what is allowed, at most 1 where both are the same, and
    ``places`` the number of the element of the input that deviates most. ``nan`` says where the
    expected output has NaN: those values are no measure of ours. ``channels`` has the largest
    deviation of each input and place on the axis of unlike values; None without one.
    """

    deviation: Array
    places: Array
    nan: Array
    channels: Array | None = None

    @property
    def largest(self) -> float:
        """The largest deviation, 0 without inputs."""
        return float(self.deviation.max(initial=0.0))


@dataclass
class Rule:
    """How far values of one output may be from the expected ones.

    ``tolerance`` is a manifest's, None for the default: a ``share`` of the size of like values,
    None for that of the output's type. The size is the largest of the input's own like values, or
    what is usual among the inputs so far, so that values which happen to cancel out are not judged
    by what rounding left of them. ``order`` is for outputs of objects. ``varying`` says at which
    places on the axis of ``unlike`` values the ``share`` is allowed; None: at all of them. Values
    that ``are_ids`` are equal or others: the ``tolerance`` is for the logits that they come from.
    """

    tolerance: Tolerance | None = None
    unlike: int | None = None
    share: float | None = None
    device: str = "cpu"
    order: ObjectOrder | None = None
    varying: Array | None = None
    are_ids: bool = False
    _logs: dict[tuple[int, ...], tuple[Array, Array]] = field(default_factory=dict)

    def share_of(self, expected: Array) -> float:
        """Return the share that is allowed by default."""
        usual = rounding_share(expected.dtype, self.device)
        return usual if self.share is None or not usual else max(usual, self.share)

    def shares_of(self, expected: Array) -> Array:
        """Return the share that is allowed of each value, in an array that fits the values."""
        share = np.asarray(self.share_of(expected))
        axis = self.unlike
        if self.varying is None or axis is None or expected.ndim < 2:
            return share
        if expected.shape[axis] != len(self.varying):
            return share
        usual = rounding_share(expected.dtype, self.device)
        axes = [each for each in range(expected.ndim) if each != axis % expected.ndim]
        return np.expand_dims(np.where(self.varying, share, usual), axes)

    def compare(
        self, ours: Array, expected: Array, tolerance: Tolerance | Rounding | None = None
    ) -> Closeness:
        """Compare arrays of one shape and type, an input a row; the ``tolerance`` is the rule's."""
        ours = np.atleast_1d(ours)
        expected = np.atleast_1d(expected)
        nan = _rows(_is_nan(expected).any, expected)
        tolerance = tolerance or self.tolerance_of(expected)
        if np.array_equal(ours, expected):
            return _equal(len(expected), nan)
        found = differences(ours, expected, tolerance).deviation
        found = np.where(_is_nan(expected), 0.0, found)
        flat = found.reshape(len(expected), -1)
        if not flat.size:
            return _equal(len(expected), nan)
        channels = None
        if self.unlike is not None and found.ndim > 1:
            moved = np.moveaxis(found, self.unlike, 1)
            channels = moved.reshape(*moved.shape[:2], -1).max(axis=2)
        return Closeness(flat.max(axis=1), flat.argmax(axis=1), nan, channels)

    def tolerance_of(self, expected: Array) -> Tolerance | Rounding:
        """Return the manifest's tolerance, or the default one of these values."""
        if self.are_ids:
            return Rounding(np.zeros(()))
        return self.tolerance or self.rounding(expected)

    def rounding(self, expected: Array) -> Rounding:
        """Return the default tolerance of values, an input a row: an absolute one for each."""
        expected = np.atleast_1d(expected)
        share = self.shares_of(expected)
        if not share.all():
            return Rounding(np.zeros(()))

        # A share of the size of like values, or of what is usual where that is more.
        sizes = _sizes(expected)
        is_fill = _is_fill(sizes, expected.dtype)
        results = np.where(is_fill, 0.0, sizes)
        scale = _largest_of_like(results, self.unlike)
        allowed = share * np.maximum(scale, self._usual(scale))

        epsilon = _EPSILONS * _epsilon(expected.dtype)
        if self.unlike is None and results.ndim > 1:
            axes = tuple(range(1, results.ndim))
            largest = results.max(axis=axes, keepdims=True, initial=0.0)
            allowed = np.maximum(allowed, epsilon * largest)
        if is_fill.any():
            allowed = np.where(is_fill, share * sizes, allowed)
        return Rounding(np.maximum(allowed, _EPSILONS * np.finfo(np.float32).tiny))

    def _usual(self, scale: Array) -> Array:
        """Return the geometric mean of sizes over the inputs so far.

        Few large ones are no more than a few in it.
        """
        positive = scale > 0
        logs = np.log(scale, where=positive, out=np.zeros_like(scale)).sum(axis=0)
        counts = positive.sum(axis=0)
        shape = scale.shape[1:]
        if shape in self._logs:
            earlier_logs, earlier_counts = self._logs[shape]
            logs = logs + earlier_logs
            counts = counts + earlier_counts
        self._logs[shape] = (logs, counts)
        return np.where(counts > 0, np.exp(logs / np.maximum(counts, 1)), 0.0)


def _equal(count: int, nan: Array) -> Closeness:
    return Closeness(np.zeros(count), np.zeros(count, int), nan)


def _rows(found: Any, expected: Array) -> Array:
    """Return for each row whether ``found`` says so of its elements."""
    axes = tuple(range(1, expected.ndim))
    return np.asarray(found(axis=axes))


def _is_nan(values: Array) -> Array:
    return np.isnan(values) if values.dtype.kind in "fcV" else np.zeros(values.shape, bool)


def _sizes(values: Array) -> Array:
    sizes = np.abs(values.astype(np.complex128 if values.dtype.kind == "c" else np.float64))
    return np.where(np.isfinite(sizes), sizes, 0.0)


def _is_fill(sizes: Array, kind: np.dtype[Any]) -> Array:
    """Return which values are no results: masks fill in round numbers, or the largest there are.

    They are far beyond all others, of whose size they tell nothing.
    """
    is_large = sizes >= _LEAST_FILL
    if kind.kind != "f" or not is_large.any():
        return np.zeros(sizes.shape, bool)
    with np.errstate(over="ignore"):
        fills = _FILLS.astype(kind).astype(np.float64)
    is_known = is_large & np.isin(sizes, fills)
    others = sizes.max(where=~is_known, initial=0.0)
    return np.asarray(is_known & (sizes >= _FILL_RATIO * others))


def _largest_of_like(sizes: Array, unlike: int | None) -> Array:
    """Return the largest of like values, an axis of 1 in place of those that they lie along."""
    if sizes.ndim < 2 or not math.prod(sizes.shape):
        return sizes
    if unlike is None:
        long_axes = [axis for axis in range(1, sizes.ndim) if sizes.shape[axis] > 1]
        axes: tuple[int, ...] = (long_axes[-1] if long_axes else sizes.ndim - 1,)
    else:
        kept = unlike % sizes.ndim
        axes = tuple(axis for axis in range(1, sizes.ndim) if axis != kept)
    return np.asarray(sizes.max(axis=axes, keepdims=True)) if axes else sizes


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
_MOST_BATCHES = 32
_FURTHER_SECONDS = 30.0  # after which no further ones are asked for
_UNITS = 8  # of rounding, which another order of summation comes to


class NearbyOutputs(NamedTuple):
    """The outputs of a model for a batch once more, and for ones that are off by rounding.

    Both are empty where the batch has nothing that could be rounded. ``further`` gives those of
    more rounded ones, for what a few can't tell. ``held_to`` gives a generation's choices for the
    tokens of another answer, None where nothing is generated.
    """

    again: Sequence[Batch] = ()
    rounded: Sequence[Batch] = ()
    further: Callable[[], Sequence[Batch]] = tuple
    held_to: Callable[[Array], Batch] | None = None

    def of(self, name: str) -> tuple[list[Array], list[Array]]:
        """Return both for one output."""
        again, rounded = (
            [each[name] for each in part if name in each] for part in (self.again, self.rounded)
        )
        return again, rounded

    def further_of(self, name: str) -> list[Array]:
        """Return one output for more rounded inputs."""
        return [each[name] for each in self.further() if name in each]

    def by(self, change: Callable[[Batch], Batch]) -> NearbyOutputs:
        """Return the same with the outputs of each batch changed."""
        again, rounded = (list(map(change, part)) for part in (self.again, self.rounded))
        return NearbyOutputs(
            again, rounded, lambda: list(map(change, self.further())), self.held_to
        )


def nearby_outputs(
    predict: Callable[[Batch], Batch], batch: Batch, axes: Axes | None = None
) -> NearbyOutputs:
    """Return a model's outputs for a batch and for batches near it, unless it refuses these.

    ``axes`` are as in ``rounded_inputs``.
    """

    again: list[Batch] = []
    rounded: list[Batch] = []
    for inputs in rounded_inputs(batch, axes):
        again.append(predict(batch))
        with contextlib.suppress(Refused):
            rounded.append(predict(inputs))

    @functools.cache
    def further() -> Sequence[Batch]:
        found = []
        end = time.monotonic() + _FURTHER_SECONDS
        for inputs in rounded_inputs(batch, axes, range(_BATCHES, _MOST_BATCHES)):
            if time.monotonic() > end:
                break
            with contextlib.suppress(Refused):
                found.append(predict(inputs))
        return found

    return NearbyOutputs(again, rounded, further)


def rounded_inputs(
    batch: Batch, axes: Axes | None = None, numbers: Iterable[int] = range(_BATCHES)
) -> Iterator[dict[str, Array]]:
    """Yield batches whose floats are off by a few units of their rounding, each its own way.

    What a model changes by that much is decided by the order of its sums. Whole numbers are exact:
    a float may be a token, a pixel or a mask. But an input that is one value all over is none of
    these, and norms divide it by what rounding leaves of its variance: it is off by units of 1 at
    least, as what a layer adds to it may be. ``axes`` has the axis of the batch by input, the first
    where one is left out; None where an input has none. ``numbers`` are seeds, one a batch.
    """
    blank = _blank(batch, axes or {})
    sizes = {name: _sizes_of_values(values, blank[name]) for name, values in batch.items()}
    if not any(each.any() for each in sizes.values()):
        return
    for number in numbers:
        random = np.random.default_rng(number)
        yield {name: _rounded(values, sizes[name], random) for name, values in batch.items()}


def _rounded(values: Array, sizes: Array, random: np.random.Generator) -> Array:
    if not sizes.any():
        return values
    off = _UNITS * np.finfo(values.dtype).eps * random.choice([-1.0, 1.0], values.shape)
    return np.asarray(values + off * sizes, values.dtype)


def _sizes_of_values(values: Array, blank: Array) -> Array:
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
