"""Outputs of batches as rows, one an input: files of all, and comparison by the size of a batch."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError, OutputError
from pytest_mlms.manifest.schema import BATCH, Input, Output
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array, Refused
from pytest_mlms.measure.evaluate.closeness import NearbyOutputs, Rule, nearby_outputs
from pytest_mlms.measure.evaluate.inputs import Inputs, random_batch
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep, rules_of
from pytest_mlms.measure.evaluate.timed_inputs import alike_elements
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.provide.cases import Case

Batch = Mapping[str, Array]


class StateLoop:
    """The states of a model over the batches of a dataset, in order.

    Row r of a batch of B goes on with the state of row r of the batch before: element i follows
    element i - B. Where these belong to two sequences, the state is the initial one.
    """

    def __init__(self, dataset: Dataset, size: int) -> None:
        self._specs = [spec for spec in dataset.inputs if spec.is_state and not spec.grows]
        self._sequences = dataset.sequences
        self._count = len(dataset)
        self._size = size
        self._first = 0
        self._outputs: Batch | None = None

    def next(self, batch: Batch) -> Batch:
        """Return the next batch, which has the states of the beginning, with its own."""
        if not self._specs or self._outputs is None:
            return batch
        begins = self._begins()
        states = {}
        for spec in self._specs:
            states[spec.name] = self._state(spec, batch[spec.name], begins)
        return {**batch, **states}

    def done(self, outputs: Batch) -> None:
        """Take all outputs of a batch."""
        self._outputs = outputs
        self._first += self._size

    def _begins(self) -> NDArray[np.bool_]:
        """Return for each row of the next batch whether a sequence begins there."""
        begins = np.zeros(self._size, bool)
        if self._sequences is None:
            return begins
        for row in range(min(self._size, self._count - self._first)):
            index = self._first + row
            begins[row] = self._sequences[index] != self._sequences[index - self._size]
        return begins

    def _state(self, spec: Input, start: Array, begins: NDArray[np.bool_]) -> Array:
        outputs = self._outputs or {}
        name = spec.from_output or ""
        if name not in outputs:
            known = ", ".join(outputs)
            found = f"the model has no output {name!r}, from_output of input {spec.name!r}"
            raise OutputError(f"{found}; write one of {known}")
        state = outputs[name]
        if state.shape != start.shape:
            found = f"output {name!r} is {state.shape}, and its input {spec.name!r} is"
            raise OutputError(f"{found} {start.shape}; correct the shape of the input")
        if not begins.any():
            return state
        if spec.batch_axis is None:
            return start
        shape = [1] * state.ndim
        shape[spec.batch_axis] = -1
        return np.where(begins.reshape(shape), start, state)


_OF_OBJECTS = ("boxes", "scores", "classes", "masks")
"""Types of outputs that may have a row for each object of the only input, and no batch."""


@dataclass(frozen=True)
class BatchAxis:
    """The axis of the batch of one output: ``axes`` are those that it may be, likeliest first."""

    output: Output
    axes: Sequence[int]

    @classmethod
    def of(
        cls, output: Output, predictor: Predictor, input_axes: Mapping[str, int | None]
    ) -> BatchAxis:
        """Return the axis that the manifest names.

        Otherwise it is the only free axis of the model's output, where the batch is free in its
        inputs, or else the first. ``input_axes`` has the axis of the batch of its inputs, by name.
        """
        if output.batch_axis is not None:
            return cls(output, [output.batch_axis])
        free = _free_axes(output.name, predictor)
        if len(free) == 1 and _has_free_batch(predictor, input_axes):
            return cls(output, [*free, 0])
        return cls(output, [0])

    def rows(self, values: Array, size: int) -> Array:
        """Return an output of a batch of ``size`` with the axis of the batch first.

        Raises OutputError where it has none.
        """
        shape = self.output.shape
        if shape is not None and not _fits(values.shape, shape):
            found = f"output {self.output.name!r} of {size} inputs is {values.shape}"
            raise OutputError(f"{found}; correct its shape in the manifest, [{_text(shape)}]")
        if self.output.batch and size == 1:
            return values[np.newaxis]
        for axis in self.axes:
            if axis < values.ndim and values.shape[axis] == size:
                return np.moveaxis(values, axis, 0)
        if size == 1 and self.output.type in _OF_OBJECTS:
            return values[np.newaxis]
        found = f"output {self.output.name!r} of {size} inputs is {values.shape}"
        raise OutputError(
            f"{found}, without a row an input; say with 'shape: […, batch, …]' which axis is the "
            f"batch, with 'batch: none' that it has none, or leave it out of the manifest's outputs"
        )


def _free_axes(name: str, predictor: Predictor) -> list[int]:
    for tensor in predictor.outputs:
        if tensor.name == name:
            return [axis for axis, size in enumerate(tensor.shape) if size is None]
    return []


def _has_free_batch(predictor: Predictor, axes: Mapping[str, int | None]) -> bool:
    """Return whether a model's inputs say that it takes batches of any size."""
    for tensor in predictor.inputs:
        axis = axes.get(tensor.name, 0)
        if axis is not None and tensor.shape[axis : axis + 1] == (None,):
            return True
    return False


def _fits(found: Sequence[int], written: Sequence[int | str]) -> bool:
    if len(found) != len(written):
        return False
    pairs = zip(found, written, strict=True)
    return all(axis == BATCH or size == axis for size, axis in pairs)


def _text(shape: Iterable[int | str]) -> str:
    return ", ".join(map(str, shape))


@dataclass(frozen=True, eq=False)
class BatchRows:
    """The outputs of one batch, of which the first ``count`` inputs are meant.

    The others filled up the batch.
    """

    axes: Mapping[str, BatchAxis]
    outputs: Mapping[str, Array]
    size: int
    count: int

    def rows(self, name: str) -> Array:
        """Return an output, a row an input. Raises OutputError where it hasn't any."""
        values = self.outputs[name]
        return self.axes[name].rows(values, self.size)[: self.count]

    def by_input(self) -> dict[str, Array]:
        """Return all outputs, a row an input where there is one."""
        found = {}
        for name in sorted(self.axes.keys() & self.outputs.keys()):
            try:
                found[name] = self.rows(name)
            except OutputError:
                found[name] = self.outputs[name]
        return found


def batch_axes_of(
    outputs: Sequence[Output], predictor: Predictor, input_axes: Mapping[str, int | None]
) -> dict[str, BatchAxis]:
    """Return the axis of the batch of each output, by name; arguments as ``BatchAxis.of`` has."""
    return {output.name: BatchAxis.of(output, predictor, input_axes) for output in outputs}


def predict_rows(
    predictor: Predictor, inputs: Inputs, outputs: Sequence[Output]
) -> Iterator[BatchRows]:
    """Yield the outputs of all inputs by batches; inputs are prepared while the model works."""
    axes = batch_axes_of(outputs, predictor, inputs.batch_axes)
    size = inputs.batch_size
    left = len(inputs)
    states = StateLoop(inputs.dataset, size) if inputs.dataset else None
    for batch in inputs.batches():
        found = predictor.predict(states.next(batch) if states else batch)
        if states:
            states.done(found)
        yield BatchRows(axes, found, size, min(left, size))
        left -= size


def predict_all(
    predictor: Predictor, inputs: Inputs, outputs: Sequence[Output]
) -> dict[str, Array]:
    """Return outputs for all inputs, N rows each, in unnamed temporary files.

    Raises OutputError where an output hasn't a row of one shape for each input, and MlmsError where
    the disk is full.
    """
    try:
        files = RowFiles([output.name for output in outputs])
        for batch in predict_rows(predictor, inputs, outputs):
            files.add(batch)
        return files.mapped()
    except OSError as error:
        where = f"outputs can't be kept in {tempfile.gettempdir()}"
        raise MlmsError(f"{where}: {error.strerror}; set TMPDIR") from error


class RowFiles:
    """The rows of some outputs over all batches, in unnamed temporary files."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._files: dict[str, _RowsFile] = {}
        self.bytes = 0

    def add(self, batch: BatchRows) -> None:
        """Write the rows of a batch.

        Raises OutputError where an output hasn't a row an input, or rows of another shape or type
        than before.
        """
        for name in self._names:
            rows = batch.rows(name)
            if name not in self._files:
                self._files[name] = _RowsFile(name, rows)
            self._files[name].append(rows)
            self.bytes += rows.nbytes

    def mapped(self) -> dict[str, Array]:
        """Return all rows of each output as one array."""
        return {name: file.mapped() for name, file in self._files.items()}


class _RowsFile:
    """Rows of one output in an unnamed temporary file, which lasts as long as a mapped array.

    The first rows of the output say of which shape and type all must be. Texts are kept in memory,
    as the longest may come last.
    """

    def __init__(self, name: str, first: Array) -> None:
        self._name = name
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._file.close)  # a mapped array has a descriptor of its own
        self._shape = first.shape[1:]
        self._dtype = first.dtype
        self._count = 0
        self._texts: list[Array] = []

    def append(self, rows: Array) -> None:
        """Write rows; raises OutputError where they are of another shape or type."""
        shape = rows.shape[1:]
        are_texts = rows.dtype.kind == self._dtype.kind == "U"
        if shape != self._shape or not (are_texts or rows.dtype == self._dtype):
            found = f"output {self._name!r} is {shape} for some inputs and {self._shape} for others"
            raise OutputError(f"{found}; agreement takes one shape")
        if are_texts:
            self._texts.append(rows)
            return
        self._file.write(rows.tobytes())
        self._count += len(rows)

    def mapped(self) -> Array:
        """Return all rows as one array."""
        if self._texts:
            return np.concatenate(self._texts)
        self._file.flush()
        shape = (self._count, *self._shape)
        if 0 in shape:  # an empty file can't be mapped
            return np.empty(shape, self._dtype)
        return np.memmap(self._file, self._dtype, "r", shape=shape)


Outputs = Mapping[str, Array]

TOGETHER = 8
"""Inputs that are run alone, and as one batch."""

NO_ROWS = "no output has a row for each input"
"""Why there is nothing to compare where outputs are of a whole batch."""

BEYOND_MEASURE = 1e9
"""The multiple of rounding that stands for NaN, other whole numbers and forms, and no outputs."""


@dataclass(frozen=True)
class ByBatch:
    """A model's outputs for inputs alone and together: ``sweep`` has their differences.

    ``lacking`` is why nothing was compared, ``refused`` why the model took only some of the calls.
    """

    sweep: OutputSweep = field(default_factory=lambda: OutputSweep({}))
    lacking: str = ""
    refused: str = ""

    @property
    def ratio(self) -> float:
        """The largest difference, as a multiple of rounding or of the manifest's agreement."""
        if self.refused or self.sweep.problem:
            return BEYOND_MEASURE
        return min(self.sweep.ratio, BEYOND_MEASURE)

    @property
    def ratios(self) -> dict[str, float]:
        """The differences of each output that could be compared."""
        found = self.sweep.outputs.items()
        return {name: min(each.ratio, BEYOND_MEASURE) for name, each in found}

    def unjudged(self, *others: ByBatch) -> str:
        """Return why too few inputs were judged here and there, "" where half of them were."""
        names = {name for each in (self, *others) for name in each.sweep.unjudged}
        if 2 * len(names) <= TOGETHER:
            return ""
        count = f"{len(names)} of {TOGETHER}"
        return f"rounding decides the outputs for {count} inputs; write an agreement"


@dataclass
class BatchSizes:
    """Compares processes of a case by the size of the batch, all of them on the same inputs.

    Whether there is something to compare is up to the first one: of an upgrade the baseline.
    """

    case: Case
    dataset: Dataset | None
    seed: int
    _drawn: Outputs | None = None
    _missing: str | None = None

    def compare(self, predictor: Predictor, rules: Mapping[str, Rule] | None = None) -> ByBatch:
        """Return how far the outputs of a few inputs alone are from their outputs in one batch.

        ``rules`` say how far each may be; by default they are the case's.
        """
        if self._missing is None:
            self._missing = self._lacking(predictor)
        if self._missing:
            return ByBatch(lacking=self._missing)
        batch = self._batch(predictor)
        try:
            alone = self._alone(predictor, batch)
        except Refused as error:
            return ByBatch(refused=f"it refuses a batch of 1: {error}")
        try:
            together = self._rows(predictor, batch, TOGETHER)
        except Refused as error:
            return ByBatch(refused=f"it refuses a batch of {TOGETHER}: {error}")
        rules = rules_of(self.case) if rules is None else rules
        known = {name: rule for name, rule in rules.items() if _are_rows(alone, together, name)}
        if not known:
            return ByBatch(lacking=NO_ROWS)
        sweep = OutputSweep(known, of_itself=True)
        names = [f"input {row + 1}" for row in range(TOGETHER)]

        def nearby() -> NearbyOutputs:
            return nearby_outputs(partial(self._alone, predictor), batch, self._axes)

        sweep.add(alone, together, names, nearby)
        return ByBatch(sweep)

    @property
    def _axes(self) -> Mapping[str, int | None]:
        return self.case.loaded.manifest.batch_axes

    def _lacking(self, predictor: Predictor) -> str:
        """Return why there is nothing to compare, "" where there is."""
        if self.case.loaded.manifest.has_state:
            return "the model has a state"
        if self.case.loaded.manifest.generate:
            return "a generation is of one prompt"
        for tensor in predictor.inputs:
            axis = self._axes.get(tensor.name, 0)
            if axis is None or tensor.shape[axis : axis + 1] != (None,):
                return "the model doesn't say that it takes batches of any size"
        if self.dataset is not None and len(self._elements) < TOGETHER:
            return f"the dataset has fewer than {TOGETHER} inputs of one shape"
        return ""

    @cached_property
    def _elements(self) -> Sequence[int]:
        return alike_elements(self.dataset, TOGETHER, self.seed) if self.dataset else []

    def _batch(self, predictor: Predictor) -> Outputs:
        if self._drawn is None:
            if self.dataset is not None:
                self._drawn = self.dataset.batch(self._elements)
            else:
                case = replace(self.case, batch_size=TOGETHER)
                self._drawn = random_batch(predictor, case, self.seed)
        return self._drawn

    def _alone(self, predictor: Predictor, batch: Outputs) -> dict[str, Array]:
        """Return the outputs of inputs one by one, a row an input where each has one."""
        found = []
        for row in range(TOGETHER):
            one = {
                name: np.take(values, [row], self._axes.get(name, 0) or 0)
                for name, values in batch.items()
            }
            found.append(self._rows(predictor, one, 1))
        joined = {}
        for name in found[0]:
            rows = [np.atleast_1d(each[name]) for each in found]
            if {each.shape for each in rows} == {(1, *rows[0].shape[1:])}:
                joined[name] = np.concatenate(rows)
        return joined

    def _rows(self, predictor: Predictor, batch: Outputs, size: int) -> dict[str, Array]:
        outputs = self.case.loaded.manifest.outputs
        axes = batch_axes_of(outputs, predictor, self._axes)
        return BatchRows(axes, predictor.predict(batch), size, size).by_input()


def _are_rows(alone: Outputs, together: Outputs, name: str) -> bool:
    """Return whether both have a row of an output for each input."""
    return name in alone and len(np.atleast_1d(together.get(name, ()))) == TOGETHER
