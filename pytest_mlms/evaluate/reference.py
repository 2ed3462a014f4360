"""Outputs of a framework for all inputs, and the comparison with the reference framework's.

Outputs are kept on disk, so that their size is not bounded by memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.agent.process import Array
from pytest_mlms.cases import Case
from pytest_mlms.errors import MlmsError, OutputError
from pytest_mlms.evaluate.agreement import Differences, Tolerance, chunks, compare
from pytest_mlms.evaluate.inputs import Inputs
from pytest_mlms.evaluate.ranking import BothSides, Ranking, rank
from pytest_mlms.manifest.schema import Output
from pytest_mlms.pipeline import Dataset, is_table, postprocess, table_of

__all__ = [
    "OutputComparison",
    "Reference",
    "compare_outputs",
    "compute_reference",
    "predict_all",
]


class ReferenceIdentity(NamedTuple):
    """Record of a reference."""

    stack: str
    framework: str
    device: str
    versions: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Reference:
    """The outputs of the reference framework for all inputs, N rows each.

    ``case`` has its model, stack and device, ``log`` is its agent's, and ``open`` starts it again.
    """

    case: Case
    inputs: Inputs
    outputs: Mapping[str, Array]
    versions: Mapping[str, str]
    log: Path
    open: Callable[[], AbstractContextManager[Predictor]]

    @property
    def identity(self) -> ReferenceIdentity:
        """The fields that tell which reference it is."""
        stack = self.case.stack
        return ReferenceIdentity(
            stack=stack.name,
            framework=stack.framework,
            device=self.case.device,
            versions=self.versions,
        )

    @property
    def name(self) -> str:
        """The framework with its version, and where it ran."""
        framework = self.case.stack.framework
        return f"{framework} {self.versions[framework]} on {self.case.device}"


def compute_reference(
    case: Case, dataset: Dataset | None, open_: Callable[[], AbstractContextManager[Predictor]]
) -> Reference:
    """Return the outputs of the model of ``case``, by an agent that ``open_`` starts."""
    names = [output.name for output in case.loaded.manifest.outputs]
    with open_() as predictor:
        inputs = Inputs.of(case, dataset, predictor)
        outputs = predict_all(predictor, inputs, names)
        return Reference(
            case=case,
            inputs=inputs,
            outputs=outputs,
            versions=predictor.versions,
            log=predictor.agent.log.path,
            open=open_,
        )


def predict_all(predictor: Predictor, inputs: Inputs, names: Sequence[str]) -> dict[str, Array]:
    """Return the outputs of these names for all inputs, N rows each, in unnamed temporary files.

    Raises OutputError where an output hasn't a row of one shape for each input, and MlmsError where
    the disk is full.
    """
    try:
        files: dict[str, _RowsFile] = {}
        left = len(inputs)
        for batch in inputs.batches():
            found = predictor.predict(batch)
            for name in names:
                rows = found[name]
                _check_rows(name, rows, inputs.batch_size)
                if name not in files:
                    files[name] = _RowsFile(name, rows)
                files[name].append(rows[:left])
            left -= inputs.batch_size
        return {name: file.mapped(len(inputs)) for name, file in files.items()}
    except OSError as error:
        where = f"outputs can't be kept in {tempfile.gettempdir()}"
        raise MlmsError(f"{where}: {error.strerror}; set TMPDIR") from error


def _check_rows(name: str, rows: Array, size: int) -> None:
    if rows.ndim == 0 or len(rows) != size:
        found = f"output {name!r} of {size} inputs is {rows.shape}"
        raise OutputError(f"{found}; agreement takes outputs that have a row an input")


class _RowsFile:
    """Rows of one output in an unnamed temporary file, which the mapped array keeps alive.

    The first rows of the output say of which shape and type all must be.
    """

    def __init__(self, name: str, first: Array) -> None:
        self._name = name
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - the mapped array keeps it
        self._shape = first.shape[1:]
        self._dtype = first.dtype

    def append(self, rows: Array) -> None:
        """Write rows; raises OutputError where they are of another shape or type."""
        shape = rows.shape[1:]
        if shape != self._shape or rows.dtype != self._dtype:
            found = f"output {self._name!r} is {shape} for some inputs and {self._shape} for others"
            raise OutputError(f"{found}; agreement takes one shape")
        self._file.write(rows.tobytes())

    def mapped(self, count: int) -> Array:
        """Return all rows as one array."""
        self._file.flush()
        shape = (count, *self._shape)
        if 0 in self._shape:  # an empty file can't be mapped
            return np.empty(shape, self._dtype)
        return np.memmap(self._file, self._dtype, "r", shape=shape)


class OutputComparison(NamedTuple):
    """The differences of all outputs, and the ranking of the classification, if there is one."""

    differences: Differences
    ranking: Ranking | None


def compare_outputs(
    outputs: Mapping[str, Array], reference: Reference, tolerance: Tolerance
) -> OutputComparison:
    """Compare all outputs with the reference's.

    Raises OutputError where the shapes are not the same.
    """
    for name, expected in reference.outputs.items():
        if outputs[name].shape != expected.shape:
            shape = outputs[name].shape[1:]
            raise OutputError(
                f"output {name!r} is {shape} for each input, and {expected.shape[1:]} by the "
                f"reference, {reference.name}; convert the model so that it has the same outputs"
            )
    found = compare(outputs, reference.outputs, tolerance)
    output = reference.case.loaded.manifest.classification
    if output is None or not is_table(reference.outputs[output.name]):
        return OutputComparison(found, None)
    count = len(reference.inputs)
    ours = table_of(output.name, outputs[output.name], count)
    expected = table_of(output.name, reference.outputs[output.name], count)
    return OutputComparison(found, rank(_scored_chunks(ours, expected, output)))


def _scored_chunks(
    ours: Array, expected: Array, output: Output
) -> Iterator[tuple[BothSides, BothSides]]:
    for rows in chunks(expected):
        values = (ours[rows], expected[rows])
        scores = (_scores(ours[rows], output), _scores(expected[rows], output))
        yield values, scores


def _scores(values: Array, output: Output) -> Array:
    with np.errstate(invalid="ignore"):  # what is not finite differs by infinity already
        return postprocess(values.astype(np.float64), output)
