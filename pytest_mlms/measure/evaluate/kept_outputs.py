"""Outputs for all inputs: kept for the items of a session, and compared with the reference's.

Where they differ, the first layer that departs from the reference's is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.errors import MlmsError, OutputError
from pytest_mlms.core.records import Kind
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array, Refused
from pytest_mlms.measure.evaluate.agreement import (
    BothSides,
    Differences,
    Ranking,
    chunks,
    compare,
    rank,
)
from pytest_mlms.measure.evaluate.closeness import Tolerance, differences
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.rows import BatchRows, RowFiles, predict_all
from pytest_mlms.measure.pipeline import Dataset, is_table, postprocess, table_of
from pytest_mlms.provide.cases import Case

_MOST_BYTES = 2 << 30
"""Bytes that are kept for items to come, of all outputs together."""


@dataclass(frozen=True, eq=False)
class KeptOutputs:
    """The outputs of a model for all ``inputs``, N rows each, by name.

    ``predictor`` is the one that computed them, whose agent may have ended, and ``nodeid`` and
    ``kind`` are of the item that asked it to.
    """

    arrays: Mapping[str, Array]
    inputs: Inputs
    predictor: Predictor
    nodeid: str
    kind: Kind

    @property
    def bytes(self) -> int:
        """The size of all arrays."""
        return sum(values.nbytes for values in self.arrays.values())

    def batches(self, names: Sequence[str]) -> Iterator[dict[str, Array]]:
        """Yield the rows of some outputs in the batches that they were computed in."""
        size = self.inputs.batch_size
        for first in range(0, len(self.arrays[names[0]]), size):
            rows = slice(first, first + size)
            yield {name: np.asarray(self.arrays[name][rows]) for name in names}


def outputs_key(case: Case) -> Hashable | None:
    """Return everything that the outputs of a case for its dataset depend on.

    None for a manifest without a dataset, whose random inputs depend on the model that they are
    drawn for.
    """
    manifest = case.loaded.manifest
    if manifest.dataset is None:
        return None
    return (case.setting, case.batch_size, manifest.dataset.sha256, repr(manifest.inputs))


class OutputsStore:
    """Outputs by their key; those that were used longest ago go first once there are too many."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._kept: dict[Hashable, KeptOutputs] = {}

    def get(self, key: Hashable | None) -> KeptOutputs | None:
        """Return the outputs that are kept for a key, None where there are none."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept[key] = kept
        return kept

    def keep(self, key: Hashable | None, outputs: KeptOutputs) -> None:
        """Keep outputs for items to come, as far as there is room; without a key for none."""
        if key is None:
            return
        self._kept.pop(key, None)
        self._kept[key] = outputs
        size = sum(kept.bytes for kept in self._kept.values())
        while size > self.most_bytes:
            oldest = next(iter(self._kept))
            size -= self._kept.pop(oldest).bytes


class OutputsKeeper:
    """Collects the outputs of an item that needs one of them only, for those that need them all.

    It gives up where they can't be kept: an item that needs them computes them again, and tells
    what is wrong with them.
    """

    def __init__(self, names: list[str], most_bytes: int) -> None:
        self._files: RowFiles | None = RowFiles(names)
        self._most_bytes = most_bytes

    def add(self, batch: BatchRows) -> None:
        """Keep the outputs of a batch."""
        if self._files is None:
            return
        try:
            self._files.add(batch)
        except (OSError, OutputError):
            self._files = None
            return
        if self._files.bytes > self._most_bytes:
            self._files = None

    def arrays(self) -> Mapping[str, Array] | None:
        """Return all outputs, N rows each; None where they could not be kept."""
        if self._files is None:
            return None
        try:
            return self._files.mapped()
        except OSError:
            return None


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
    if output is None or not _has_table(output, reference.outputs[output.name]):
        return OutputComparison(found, None)
    count = len(reference.inputs)
    ours = table_of(output, outputs[output.name], count)
    expected = table_of(output, reference.outputs[output.name], count)
    step = output.quantised_step or 0.0
    return OutputComparison(found, rank(_scored_chunks(ours, expected, output), step))


def _has_table(output: Output, values: Array) -> bool:
    """Return whether an output has scores of classes, which a number of a class isn't."""
    if output.has_class_numbers:
        return False
    return output.threshold is not None or is_table(values)


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


Layers = Sequence[tuple[str, Array]]

_EXACT = Tolerance(0.0, 0.0)


class Departure(NamedTuple):
    """The first layer that departs, by both names.

    ``difference`` is its largest one, ``size`` the reference's largest value there. ``after`` has
    both names of the last layer before it that agrees; None where none does.
    """

    layer: str
    ours: str
    difference: float
    size: float
    after: tuple[str, str] | None


@dataclass(frozen=True)
class DepartureSearch:
    """The departure that was found, or the reason why none was."""

    departure: Departure | None
    reason: str = ""


def search_departure(
    case: Case,
    open_: Callable[[], Predictor],
    reference: Reference,
    worst: int,
    tolerance: Tolerance,
) -> DepartureSearch:
    """Run both models on input number ``worst``, and find the first layer that departs.

    ``open_`` returns the model of ``case`` in an agent.
    """
    batch = reference.inputs.repeated(worst)
    framework = reference.case.stack.label
    try:
        with reference.open() as other:
            expected = other.inner(batch)
        framework = case.stack.label
        ours = open_().inner(batch)
    except MlmsError as error:  # it must not hide that the outputs differ
        if isinstance(error, Refused) and error.error == "NotImplementedError":
            return DepartureSearch(None, f"{framework} does not show its layers")
        return DepartureSearch(None, str(error))
    departure = find_departure(ours, expected, tolerance)
    if departure is None:
        return DepartureSearch(None, "of the layers that can be matched, none does")
    return DepartureSearch(departure)


class _Match(NamedTuple):
    """A layer of ours that may be one of the reference's, and the largest difference from it."""

    number: int
    name: str
    difference: float


def find_departure(ours: Layers, reference: Layers, tolerance: Tolerance) -> Departure | None:
    """Return the first layer after the last one that agrees.

    None where no layer that both sides have departs. A layer of the reference is that of the same
    name, or else any of the same shape (as it is, or with the channels moved) behind the last one
    that agreed; frameworks fuse and rename layers, so it may have none, and is passed over. A layer
    agrees where its largest difference is within atol + rtol times its largest value: the rounding
    of a sum goes by its terms, not by what is left of them.
    """
    agreed: tuple[str, str] | None = None
    departed: Departure | None = None
    behind = 0
    for name, expected in reference:
        matches = list(_matches(name, expected, ours, behind))
        if not matches:
            continue
        best = min(matches, key=lambda match: match.difference)
        size = float(np.abs(expected).max(initial=0.0))
        if best.difference <= tolerance.atol + tolerance.rtol * size:
            agreed = (name, best.name)
            departed = None
            behind = max(behind, best.number + 1)
        elif departed is None:
            departed = Departure(
                layer=name,
                ours=best.name,
                difference=best.difference,
                size=size,
                after=agreed,
            )
    return departed


def _matches(name: str, expected: Array, ours: Layers, behind: int) -> Iterator[_Match]:
    """Yield the layers of ours that may be the reference's layer ``name``."""
    has_name = any(own_name == name for own_name, _ in ours)
    for number, (own_name, values) in enumerate(ours):
        is_candidate = own_name == name if has_name else number >= behind
        if is_candidate:
            difference = _largest_difference(values, expected)
            if difference is not None:
                yield _Match(number, own_name, difference)


def _largest_difference(values: Array, expected: Array) -> float | None:
    """Return the largest difference of an element; None for arrays of different shapes.

    Shapes that differ only in where the channels are count as one.
    """
    layouts = [values]
    if values.ndim == expected.ndim > 2:
        channels_first = np.moveaxis(values, -1, 1)
        channels_last = np.moveaxis(values, 1, -1)
        layouts += [channels_first, channels_last]
    found = []
    for layout in layouts:
        if layout.shape == expected.shape:
            absolute = differences(layout, expected, _EXACT).absolute
            found.append(float(absolute.max(initial=0.0)))
    return min(found, default=None)
