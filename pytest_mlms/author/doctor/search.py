"""Search for the variant of a manifest's pre-processing that scores best on a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pytest_mlms.author.doctor.changes import LARGEST_PIXEL, only_image, single_changes
from pytest_mlms.author.doctor.comparison import Finding, compare, value_of, with_holm
from pytest_mlms.author.doctor.variants import Change, Variant, pairs_of, varied
from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import AgentError, DatasetError, MlmsError, OutputError
from pytest_mlms.core.quantities import QUANTITIES, Quantity
from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.rows import predict_rows
from pytest_mlms.measure.evaluate.scoring import Files, figures_of, score
from pytest_mlms.measure.evaluate.tasks.task import Evidence
from pytest_mlms.measure.pipeline import Dataset

_BEST = 2
"""Changes that are also tried together with each other one."""


@dataclass(frozen=True)
class Patient:
    """A model, and the sample of its dataset that variants are tried on.

    ``files`` are those that steps name.
    """

    manifest: Manifest
    predictor: Predictor
    dataset: Dataset
    files: Files
    batch_size: int


@dataclass(frozen=True)
class Diagnosis:
    """The scores of all variants, the best first, and the changes that could not run."""

    quantity: Quantity
    inputs: int
    as_written: float
    findings: Sequence[Finding]
    failed: Sequence[str]

    @property
    def best(self) -> Finding | None:
        """The best variant, or one of fewer changes that is as good within its interval.

        None where none is surely better than the manifest as it is written.
        """
        sure = [finding for finding in self.findings if finding.is_sure]
        for finding in sorted(sure, key=lambda finding: len(finding.variant.changes)):
            if finding.better >= sure[0].low:
                return finding
        return None

    @property
    def different(self) -> list[Finding]:
        """The findings that matter: pairs that add nothing to their changes are left out."""
        alone = {}
        for finding in self.findings:
            if len(finding.variant.changes) == 1:
                alone[finding.variant.changes[0].name] = finding.better
        return [finding for finding in self.findings if _adds_something(finding, alone)]


def _adds_something(finding: Finding, alone: Mapping[str, float]) -> bool:
    changes = finding.variant.changes
    if finding.low == finding.high == 0:
        return False
    if len(changes) == 1:
        return True
    return all(finding.better > alone.get(change.name, 0.0) for change in changes)


def diagnose(
    patient: Patient,
    say: Callable[[str], None],
    axes: Sequence[str] = (),
) -> Diagnosis:
    """Try variants of a manifest: each change alone, then pairs of them.

    ``axes`` are those of the changes to try, all where none are named. ``say`` is told of each
    variant. Raises MlmsError where the manifest does not run as it is written.
    """
    inputs = patient.dataset.inputs
    changes = []
    largest = _largest_pixel(patient.dataset)
    for change in single_changes(inputs, patient.manifest.label_form == "class", largest):
        if not axes or change.axis in axes:
            changes.append(change)
    if not changes:
        raise MlmsError("there is nothing to try: no input is an image, and no label a class")
    baseline = _evidence(patient, varied(inputs, ()))
    quantity = _main_quantity(patient.manifest, baseline)
    trials = _Trials(patient, baseline, quantity, say)
    for change in changes:
        trials.add([change])
    best = trials.best_changes()
    for pair in pairs_of(changes, best):
        trials.add(pair)
    found = with_holm(trials.findings)
    found.sort(key=lambda finding: finding.better, reverse=True)
    as_written = value_of(baseline, quantity.name)
    return Diagnosis(quantity, len(baseline), as_written, found, trials.failed)


def _largest_pixel(dataset: Dataset) -> float:
    """Return the largest value of the pictures as they are decoded, if all are dark, else 255."""
    image = only_image(dataset.inputs)
    if image is None or not image.steps or image.steps[0].name != "decode":
        return LARGEST_PIXEL
    changed = {"steps": image.steps[:1], "layout": "NHWC", "element_type": "uint8"}
    decoded = replace(dataset, inputs=(image.model_copy(update=changed),))
    largest = 0.0
    for index in range(len(dataset)):
        largest = max(largest, float(decoded.batch([index])[image.name].max()))
        if largest > LARGEST_PIXEL / 2:
            return LARGEST_PIXEL
    return largest


class _Trials:
    """The scores of the variants so far."""

    def __init__(
        self,
        patient: Patient,
        baseline: Evidence,
        quantity: Quantity,
        say: Callable[[str], None],
    ) -> None:
        self._patient = patient
        self._baseline = baseline
        self._quantity = quantity
        self._say = say
        self.findings: list[Finding] = []
        self.failed: list[str] = []

    def add(self, changes: Sequence[Change]) -> None:
        """Try some changes together; what does not run is noted."""
        variant = varied(self._patient.dataset.inputs, changes)
        self._say(variant.name)
        try:
            evidence = _evidence(self._patient, variant)
        except (AgentError, DatasetError, OutputError, ValueError):
            if not self._patient.predictor.agent.alive:
                raise
            if len(changes) == 1:
                self.failed.append(variant.name)
            return
        finding = compare(variant, self._quantity, self._baseline, evidence)
        self.findings.append(finding)

    def best_changes(self) -> list[Change]:
        """Return the changes that are better, the best of each axis, at most a few."""
        found: dict[str, Finding] = {}
        for finding in sorted(self.findings, key=lambda one: one.better, reverse=True):
            if finding.better > 0 and finding.low >= 0:
                found.setdefault(finding.variant.changes[0].axis, finding)
        return [finding.variant.changes[0] for finding in list(found.values())[:_BEST]]


def _evidence(patient: Patient, variant: Variant) -> Evidence:
    """Return the evidence of a model's outputs for a variant of its inputs."""
    dataset = replace(patient.dataset, inputs=variant.inputs)
    if variant.offset:
        dataset = replace(dataset, labels=_shifted(dataset.labels, variant.offset))
    manifest = patient.manifest
    axes = manifest.batch_axes
    inputs = Inputs(dataset, {}, patient.batch_size, axes)
    return score(_rows(patient, inputs), manifest, dataset, patient.files)


def _rows(patient: Patient, inputs: Inputs) -> Iterator[Mapping[str, Array]]:
    outputs = patient.manifest.scored_outputs
    for batch in predict_rows(patient.predictor, inputs, outputs):
        yield {output.name: batch.rows(output.name) for output in outputs}


def _shifted(labels: Any, offset: int) -> Array:
    """Return labels of other numbers; one that is no class then is never right.

    Raises DatasetError where no label is a class any more.
    """
    moved = np.asarray(labels).astype(np.int64) + offset
    if moved.min() < 0:
        raise DatasetError("a label would be below 0")
    return moved


def _main_quantity(manifest: Manifest, evidence: Evidence) -> Quantity:
    """Return the first of a task's quantities that its evidence tells."""
    known = {*evidence.shares, *figures_of(evidence)}
    for name in manifest.task_facts.quantities:
        if name in known:
            return QUANTITIES[name]
    raise MlmsError(f"task {manifest.task} measures nothing of these inputs; add labels")
