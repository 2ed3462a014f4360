"""Scores of variants of a manifest's pre-processing over a sample of its dataset.

Variants are compared with the manifest as it is written, paired by input. Many are tried, so their
p-values are corrected by Holm's method (Holm 1979, Scandinavian Journal of Statistics 6:65).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.doctor.variants import (
    Change,
    Variant,
    pairs_of,
    single_changes,
    varied,
)
from pytest_mlms.errors import AgentError, DatasetError, MlmsError, OutputError
from pytest_mlms.evaluate.estimates import figures_of, resampled_bounds, resampled_figures
from pytest_mlms.evaluate.inputs import Inputs
from pytest_mlms.evaluate.rows import predict_rows
from pytest_mlms.evaluate.scoring import Files, score
from pytest_mlms.evaluate.tasks.task import Evidence
from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.pipeline import Dataset
from pytest_mlms.quantities import QUANTITIES, Quantity

__all__ = ["Diagnosis", "Finding", "Patient", "diagnose", "holm", "sampled"]

Array = NDArray[Any]

_RISK = 0.05
_TAIL = 0.025
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
class Finding:
    """The score of a variant.

    Attributes:
        variant: What was tried.
        value: The main quantity.
        better: How much better it is than as written, in the quantity's unit.
        low: The lower end of the 95 % interval of that, and ``high`` its upper one.
        p: The probability of such a change or a larger one if there were none.
        is_sure: Whether it is better in spite of how many variants were tried.
    """

    variant: Variant
    value: float
    better: float
    low: float
    high: float
    p: float
    is_sure: bool = False


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
        for finding in sorted(sure, key=_fewest_changes):
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


def _fewest_changes(finding: Finding) -> int:
    return len(finding.variant.changes)


def _adds_something(finding: Finding, alone: Mapping[str, float]) -> bool:
    changes = finding.variant.changes
    if finding.low == finding.high == 0:
        return False
    if len(changes) == 1:
        return True
    return all(finding.better > alone.get(change.name, 0.0) for change in changes)


def sampled(dataset: Dataset, most: int) -> Dataset:
    """Return at most so many elements of a dataset, drawn with a fixed seed, in their order."""
    if len(dataset) <= most:
        return dataset
    drawn = np.random.default_rng(0).permutation(len(dataset))[:most]
    chosen = sorted(drawn.tolist())
    labels = dataset.labels
    if isinstance(labels, np.ndarray):
        labels = labels[chosen]
    elif labels is not None:
        labels = _Chosen(labels, chosen)
    return replace(
        dataset,
        elements={name: _Chosen(values, chosen) for name, values in dataset.elements.items()},
        labels=labels,
        files=None if dataset.files is None else _Chosen(dataset.files, chosen),
        places=None if dataset.places is None else _Chosen(dataset.places, chosen),
        numbers=chosen if dataset.numbers is None else [dataset.numbers[n] for n in chosen],
    )


class _Chosen(Sequence[Any]):
    """Some elements of a sequence, which are read when they are asked for."""

    def __init__(self, values: Sequence[Any], chosen: Sequence[int]) -> None:
        self._values = values
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._values[number] for number in self._chosen[index]]
        return self._values[self._chosen[index]]


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
    for change in single_changes(inputs, patient.manifest.label_form == "class"):
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
    found = _with_holm(trials.findings)
    found.sort(key=lambda finding: finding.better, reverse=True)
    as_written = _values(baseline, quantity.name)
    return Diagnosis(quantity, len(baseline), as_written, found, trials.failed)


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
        finding = _compared(variant, self._quantity, self._baseline, evidence)
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


def _values(evidence: Evidence, name: str) -> float:
    if name in evidence.shares:
        return float(np.mean(evidence.shares[name]))
    return figures_of(evidence)[name]


def _compared(
    variant: Variant, quantity: Quantity, baseline: Evidence, evidence: Evidence
) -> Finding:
    """Compare a variant with the manifest as written, paired by input.

    ``better`` is positive where the variant is better, whatever the quantity's direction.
    """
    name = quantity.name
    sign = -quantity.sign
    value = _values(evidence, name)
    better = sign * (value - _values(baseline, name))
    count = len(baseline)
    if name in baseline.shares:
        right = np.asarray(evidence.shares[name]).astype(int)
        change = right - np.asarray(baseline.shares[name]).astype(int)
        samples = _resampled_means(change)
        p = mcnemar(int((change > 0).sum()), int((change < 0).sum()))
    else:
        before, after = resampled_figures([baseline, evidence], seed=0)
        samples = sign * (after[name] - before[name])
        p = _bootstrap_p(samples)
    low, high = resampled_bounds(samples, _TAIL, _TAIL, count) if count > 1 else (-1.0, 1.0)
    return Finding(variant, value, better, min(low, better), max(high, better), p)


_RESAMPLES = 2000


def _resampled_means(values: Array) -> Array:
    """Return the means of samples of values that are -1, 0 and 1."""
    count = len(values)
    shares = [float((values == one).mean()) for one in (-1, 0, 1)]
    drawn = np.random.default_rng(0).multinomial(count, shares, size=_RESAMPLES)
    return np.asarray((drawn[:, 2] - drawn[:, 0]) / count)


def mcnemar(won: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's exact test (1947, Psychometrika 12:153)."""
    count = won + lost
    if count == 0:
        return 1.0
    return min(1.0, 2 * float(bdtr(min(won, lost), count, 0.5)))


def _bootstrap_p(samples: Array) -> float:
    """Return a two-sided p-value of a difference by its bootstrap samples."""
    known = samples[~np.isnan(samples)]
    below = (1 + (known <= 0).sum()) / (1 + len(known))
    above = (1 + (known >= 0).sum()) / (1 + len(known))
    return float(min(1.0, 2 * min(below, above)))


def _with_holm(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with whether each is surely better."""
    rejected = holm([finding.p for finding in findings], _RISK)
    pairs = zip(findings, rejected, strict=True)
    return [replace(one, is_sure=sure and one.better > 0) for one, sure in pairs]


def holm(p_values: Sequence[float], risk: float) -> list[bool]:
    """Return which hypotheses of no change are rejected, with this risk that any is wrongly."""
    order = sorted(range(len(p_values)), key=lambda number: p_values[number])
    rejected = [False] * len(p_values)
    for rank, number in enumerate(order):
        if p_values[number] > risk / (len(p_values) - rank):
            break
        rejected[number] = True
    return rejected
