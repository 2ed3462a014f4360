"""What a framework computes from all inputs, and the reference framework first of all.

Once a session, kept on disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.agent.process import Array
from pytest_mlms.cases import Case
from pytest_mlms.errors import MlmsError, OutputError
from pytest_mlms.evaluate.agreement import Differences, Ranking, Tolerance, chunks, compare, rank
from pytest_mlms.evaluate.performance import random_batch
from pytest_mlms.manifest.schema import Output
from pytest_mlms.pipeline import Dataset, postprocess

__all__ = ["Inputs", "Reference", "compare_outputs", "compute_reference", "predict_all"]

Form = tuple[tuple[int, ...], np.dtype[np.generic]]


@dataclass(frozen=True, eq=False)
class Inputs:
    """What both sides work on.

    The dataset, or without one a batch of random values from the manifest's seed.
    """

    dataset: Dataset | None
    drawn: Mapping[str, Array]
    batch_size: int

    @classmethod
    def of(cls, case: Case, dataset: Dataset | None, reference: Predictor) -> Inputs:
        """Return the inputs of a case; random ones have the shapes of the reference's model."""
        size, seed = case.batch_size, case.loaded.manifest.evaluate.seed
        return cls(dataset, {} if dataset else random_batch(reference, size, seed)[0], size)

    def __len__(self) -> int:
        return len(self.dataset) if self.dataset else self.batch_size

    def batches(self) -> Iterable[Mapping[str, Array]]:
        """Return all of them, in batches of one size; the last may be filled up."""
        return self.dataset.batches(self.batch_size) if self.dataset else [self.drawn]

    def one(self, index: int) -> Mapping[str, Array]:
        """Return a batch that is all of one input: a model may take no other size."""
        if self.dataset:
            return self.dataset.batch([index] * self.batch_size)
        return {
            name: np.repeat(values[index : index + 1], len(values), axis=0)
            for name, values in self.drawn.items()
        }

    def label(self, index: int) -> int | None:
        """Return the label of an input, where there are labels."""
        labels = self.dataset.labels if self.dataset else None
        return None if labels is None else int(labels[index])


@dataclass(frozen=True, eq=False)
class Reference:
    """The outputs of the reference framework: ``case`` says which model, stack and device.

    N rows each.
    """

    case: Case
    inputs: Inputs
    outputs: Mapping[str, Array]
    versions: Mapping[str, str]
    log: Path
    open: Callable[[], AbstractContextManager[Predictor]]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for the results."""
        stack = self.case.stack
        return {
            "stack": stack.name,
            "framework": stack.framework,
            "device": self.case.device,
            "versions": self.versions,
        }

    @property
    def name(self) -> str:
        """The framework with its version, and where it ran."""
        framework = self.case.stack.framework
        return f"{framework} {self.versions[framework]} on {self.case.device}"


def compute_reference(
    case: Case, dataset: Dataset | None, open_: Callable[[], AbstractContextManager[Predictor]]
) -> Reference:
    """Return what the model of ``case`` computes in an agent that ``open_`` starts, and that ends
    with this.
    """
    with open_() as predictor:
        inputs = Inputs.of(case, dataset, predictor)
        outputs = predict_all(
            predictor, inputs, [output.name for output in case.loaded.manifest.outputs]
        )
        return Reference(case, inputs, outputs, predictor.versions, predictor.agent.log.path, open_)


def predict_all(predictor: Predictor, inputs: Inputs, names: Sequence[str]) -> dict[str, Array]:
    """Return the outputs of these names for all inputs, N rows each; they are in unnamed temporary
    files.

    Raises OutputError where an output has not a row of one shape for each input.
    """
    try:
        files = {name: tempfile.TemporaryFile() for name in names}  # noqa: SIM115 - the arrays keep them
        forms: dict[str, Form] = {}
        left = len(inputs)
        for batch in inputs.batches():
            found = predictor.predict(batch)
            for name, file in files.items():
                rows = found[name]
                _check_rows(
                    name,
                    rows,
                    inputs.batch_size,
                    forms.setdefault(name, (rows.shape[1:], rows.dtype)),
                )
                file.write(rows[:left].tobytes())
            left -= inputs.batch_size
        return {name: _mapped(file, len(inputs), *forms[name]) for name, file in files.items()}
    except OSError as error:
        raise MlmsError(
            f"outputs can't be kept in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR"
        ) from error


def compare_outputs(
    outputs: Mapping[str, Array], reference: Reference, tolerance: Tolerance
) -> tuple[Differences, Ranking | None]:
    """Return the differences of all outputs, and of the classification its best classes and
    divergences.

    Raises OutputError where the shapes are not the same.
    """
    for name, expected in reference.outputs.items():
        if outputs[name].shape != expected.shape:
            raise OutputError(
                f"output {name!r} is {outputs[name].shape[1:]} for each input, and {expected.shape[1:]} by the "
                f"reference, {reference.name}; convert the model so that it has the same outputs"
            )
    found = compare(outputs, reference.outputs, tolerance)
    output = reference.case.loaded.manifest.classification
    if output is None or reference.outputs[output.name].ndim != 2:
        return found, None
    ours, expected = outputs[output.name], reference.outputs[output.name]
    return found, rank(
        (_scores(ours[rows], output), _scores(expected[rows], output)) for rows in chunks(expected)
    )


def _scores(values: Array, output: Output) -> Array:
    with np.errstate(invalid="ignore"):  # what is not finite differs by infinity already
        return postprocess(values.astype(np.float64), output)


def _check_rows(name: str, rows: Array, size: int, form: Form) -> None:
    if rows.ndim == 0 or len(rows) != size:
        raise OutputError(
            f"output {name!r} of {size} inputs is {rows.shape}; agreement takes outputs that have a row an input"
        )
    if (rows.shape[1:], rows.dtype) != form:
        raise OutputError(
            f"output {name!r} is {rows.shape[1:]} for some inputs and {form[0]} for others; agreement takes one shape"
        )


def _mapped(
    file: IO[bytes], count: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]
) -> Array:
    file.flush()
    if not np.prod(shape):
        return np.empty((count, *shape), dtype)
    return np.memmap(file, dtype, "r", shape=(count, *shape))
