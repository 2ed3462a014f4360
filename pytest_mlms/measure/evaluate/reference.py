"""Outputs of the reference framework for all inputs, and the comparison with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.agreement import Differences, Tolerance, chunks, compare
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.kept_outputs import KeptOutputs
from pytest_mlms.measure.evaluate.ranking import BothSides, Ranking, rank
from pytest_mlms.measure.evaluate.rows import predict_all
from pytest_mlms.measure.pipeline import Dataset, is_table, postprocess, table_of
from pytest_mlms.provide.cases import Case


class ReferenceIdentity(NamedTuple):
    """Record of a reference; ``sha256`` has the digest of each of its model's files by role."""

    stack: str
    framework: str
    device: str
    versions: Mapping[str, str]
    sha256: Mapping[str, str]


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

    @classmethod
    def of(
        cls,
        case: Case,
        kept: KeptOutputs,
        open_: Callable[[], AbstractContextManager[Predictor]],
    ) -> Reference:
        """Return the reference whose outputs were computed by the model of ``case``."""
        return cls(
            case=case,
            inputs=kept.inputs,
            outputs=kept.arrays,
            versions=kept.predictor.versions,
            log=kept.predictor.agent.log.path,
            open=open_,
        )

    @property
    def identity(self) -> ReferenceIdentity:
        """The fields that tell which reference it is."""
        stack = self.case.stack
        return ReferenceIdentity(
            stack=stack.name,
            framework=stack.framework,
            device=self.case.device,
            versions=self.versions,
            sha256=self.case.loaded.model_digests(self.case.model),
        )

    @property
    def name(self) -> str:
        """The framework with its version, and where it ran."""
        framework = self.case.stack.framework
        return f"{framework} {self.versions[framework]} on {self.case.device}"


def compute_outputs(
    case: Case, dataset: Dataset | None, predictor: Predictor, nodeid: str
) -> KeptOutputs:
    """Return the outputs of the model of ``case`` for all inputs, asked for by item ``nodeid``."""
    inputs = Inputs.of(case, dataset, predictor)
    arrays = predict_all(predictor, inputs, case.loaded.manifest.outputs)
    return KeptOutputs(arrays, inputs, predictor, nodeid, case.kind)


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
    ours = table_of(output, outputs[output.name], count)
    expected = table_of(output, reference.outputs[output.name], count)
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
