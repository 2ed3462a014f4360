"""Scoring of a model's outputs for a dataset: evidence, estimates from it, and the worst inputs.

The task turns outputs into evidence, batch by batch.
"""

from __future__ import annotations

import importlib
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import OutputError
from pytest_mlms.core.quantities import QUANTITIES, Quantity
from pytest_mlms.core.records import Estimate
from pytest_mlms.core.statistics import student_quantile, wilson_interval
from pytest_mlms.core.tasks import facts_of
from pytest_mlms.core.text import shortened
from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.measure.evaluate.tasks.task import Evidence, Task
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.step_files import with_local_files

if TYPE_CHECKING:
    from pytest_mlms.measure.pipeline import Dataset


def task_named(name: str) -> Task:
    """Return the task that ``task:`` of a manifest names, or else classification."""
    module, _, class_name = facts_of(name).location.partition(":")
    task: type[Task] = getattr(importlib.import_module(module), class_name)
    return task()


Files = Mapping[str, Path]
"""Local paths of the files that the steps of a manifest name, by their names there."""


class Scoring:
    """Scores the outputs of a dataset, whose rows are added batch by batch.

    ``files`` are those that the steps of outputs name. ``judged`` are the quantities that must be
    measured, by default those that the manifest limits or gives a tolerance.
    """

    def __init__(
        self,
        manifest: Manifest,
        dataset: Dataset,
        files: Files,
        judged: Collection[str] | None = None,
    ) -> None:
        outputs = [with_local_files(output, files) for output in manifest.scored_outputs]
        self._names = [output.name for output in outputs]
        self._scorer = task_named(manifest.task).scorer(outputs, dataset)
        self._dataset = dataset
        self._done = 0
        if judged is None:
            entries = {entry.key for entry in manifest.thresholds.entries()}
            judged = entries | set(manifest.thresholds.upgrade.tolerances())
        self._judged = judged

    def add(self, rows: Mapping[str, Array], count: int) -> None:
        """Take the rows of ``count`` inputs by output.

        Raises OutputError for outputs that can't be scored, DatasetError for labels that don't fit.
        """
        scored = {}
        for name in self._names:
            if name not in rows or len(np.atleast_1d(rows[name])) != count:
                raise OutputError(f"output {name!r} has no row for each input")
            scored[name] = rows[name]
        inputs = range(self._done, self._done + count)
        self._scorer.add(self._dataset.scored(scored), inputs)
        self._done += count

    def evidence(self) -> Evidence:
        """Return the evidence of all inputs that were added.

        Raises OutputError for a limit on a quantity that can't be measured by them.
        """
        evidence = self._scorer.evidence()
        for name, reason in evidence.unmeasured.items():
            if name in self._judged:
                raise OutputError(f"thresholds: {name} can't be measured: {reason}")
        return evidence


def score(
    batches: Iterable[Mapping[str, Array]], manifest: Manifest, dataset: Dataset, files: Files
) -> Evidence:
    """Return the evidence of a whole dataset.

    ``batches`` are the rows of the outputs that the task scores, by name, a batch at a time; they
    may be computed as they are asked for. Raises as Scoring does.
    """
    scoring = Scoring(manifest, dataset, files)
    for rows in batches:
        scoring.add(rows, len(next(iter(rows.values()))))
    return scoring.evidence()


UNDEFINED = "it is undefined for these inputs, as where all labels are empty or alike"
"""Why there is no value of a quantity, such as R² of labels that don't vary."""

_CONFIDENCE = 0.95
_RESAMPLES = 1000
_MOST_COUNTS = 1 << 22
"""Counts of inputs in samples that are there at once: 32 MiB."""


def estimate_evidence(evidence: Evidence, seed: int) -> dict[str, Estimate]:
    """Return the quantities of a task with their 95 % intervals.

    Shares have Wilson's interval, and figures one of the bootstrap over the inputs, drawn by
    ``seed``.
    """
    inputs = len(evidence)
    estimates = {}
    for name, right in evidence.shares.items():
        estimates[name] = estimate_share(int(right.sum()), inputs)
    values = figures_of(evidence)
    if not values:
        return estimates
    (samples,) = resampled_figures([evidence], seed)
    for name, value in values.items():
        bias = evidence.biases.get(name, 0.0)
        estimates[name] = _estimate_figure(QUANTITIES[name], value, samples[name], inputs, bias)
    return estimates


def estimate_share(count: int, inputs: int) -> Estimate:
    """Return the share of ``count`` among ``inputs``, with Wilson's interval at 95 %."""
    share = count / inputs
    low, high = wilson_interval(count, inputs, confidence=_CONFIDENCE)
    return _estimate(share, low, high, inputs)


def _estimate(value: float, low: float, high: float, inputs: int, lacking: str = "") -> Estimate:
    return Estimate(
        value=value,
        low=low,
        high=high,
        confidence=_CONFIDENCE,
        replicates=inputs,
        of="inputs",
        lacking=lacking,
    )


def figures_of(evidence: Evidence) -> dict[str, float]:
    """Return the figures of all inputs, each once."""
    found = evidence.figures(np.ones((1, len(evidence))))
    return {name: float(values[0]) for name, values in found.items()}


def resampled_figures(sides: Sequence[Evidence], seed: int) -> list[dict[str, Array]]:
    """Return the figures of each side in 1,000 samples of the inputs, drawn with replacement.

    All sides have the same samples, so that they are paired.
    """
    parts: list[list[dict[str, Array]]] = [[] for _ in sides]
    for counts in _resampled_counts(len(sides[0]), seed):
        for side, found in zip(sides, parts, strict=True):
            found.append(dict(side.figures(counts)))
    joined = []
    for found in parts:
        names = found[0]
        joined.append({name: np.concatenate([part[name] for part in found]) for name in names})
    return joined


def _resampled_counts(inputs: int, seed: int) -> Iterator[Array]:
    """Yield how often each input is in each sample (R x inputs), some samples at a time."""
    generator = np.random.default_rng(seed)
    most = max(1, _MOST_COUNTS // inputs)
    for first in range(0, _RESAMPLES, most):
        counts = np.empty((min(most, _RESAMPLES - first), inputs))
        for sample in counts:
            drawn = generator.integers(inputs, size=inputs)
            sample[:] = np.bincount(drawn, minlength=inputs)
        yield counts


def resampled_bounds(
    samples: Array, below: float, above: float, inputs: int
) -> tuple[float, float]:
    """Return the bounds of a figure by its bootstrap samples, of which NaN are left out.

    It is below the first with a probability of ``below``, and above the second with one of
    ``above``: the percentiles of the samples, expanded for few inputs by Student's t and the lost
    degree of freedom (Hesterberg 2015, The American Statistician 69:371, section 4.5).
    """
    known = samples[~np.isnan(samples)]
    low = np.quantile(known, _expanded(below, inputs))
    high = np.quantile(known, 1 - _expanded(above, inputs))
    return float(low), float(high)


def _expanded(tail: float, inputs: int) -> float:
    wider = student_quantile(inputs - 1, tail) * math.sqrt(inputs / (inputs - 1))
    return float(scipy.special.ndtr(wider))


def _estimate_figure(
    quantity: Quantity, value: float, samples: Array, inputs: int, bias: float
) -> Estimate:
    if math.isnan(value) or np.isnan(samples).all():
        return _estimate(value, 0.0, math.inf, inputs, lacking=UNDEFINED)
    if inputs < 2:
        return _estimate(value, 0.0, math.inf, inputs, lacking="an interval needs 2 inputs")
    tail = (1 - _CONFIDENCE) / 2
    low, high = resampled_bounds(samples, tail, tail, inputs)
    low = max(min(low, value) - bias, 0.0) if bias else min(low, value)
    high = max(high, value)
    if low == high and quantity.unit == "fraction":
        low, high = _interval_without_spread(quantity, value, inputs)
    return _estimate(value, low, high, inputs)


def _interval_without_spread(quantity: Quantity, value: float, inputs: int) -> tuple[float, float]:
    """Return the interval of a fraction that is the same in all samples.

    The inputs that the dataset lacks may be as wrong as can be: as many of them as Wilson's
    interval allows where all inputs are alike.
    """
    alike = wilson_interval(inputs, inputs, confidence=_CONFIDENCE).low
    if quantity.better == "higher":
        return alike * value, value
    return value, alike * value + (1 - alike)


_MOST_SHOWN = 5  # inputs
_MOST_COLUMNS = 5
_LONGEST_VALUE = 60  # characters
_NOTHING = "(none)"
"""Shown for an empty text, and where no object was found."""

Columns = Mapping[str, Sequence[Any]]


def worst_inputs(evidence: Evidence, dataset: Dataset) -> list[str]:
    """Return a line for each of the worst inputs: its file or row, its label, its prediction.

    There are none where no input is wrong.
    """
    return _lines(largest_losses(evidence.losses), evidence, evidence, dataset)


def worse_inputs(baseline: Evidence, candidate: Evidence, dataset: Dataset) -> list[str]:
    """Return a line for each of the inputs that got worst: what differs, before and after."""
    worst = largest_losses(candidate.losses - baseline.losses)
    return _lines(worst, baseline, candidate, dataset)


def flips_by_class(baseline: Evidence, candidate: Evidence) -> str:
    """Return how many inputs became wrong, and how many right, by the class of their label.

    "" where the task has no best class, or no input's answer changed so.
    """
    before, after = (evidence.shares.get("top1") for evidence in (baseline, candidate))
    if before is None or after is None or len(before) != len(after):
        return ""
    labels = np.asarray(candidate.columns().get("label", ()), dtype=object)
    texts = []
    for flipped, what in (
        (before & ~after, "right before and wrong now"),
        (after & ~before, "the other way round"),
    ):
        if flipped.any() and len(labels) == len(flipped):
            classes = Counter(map(str, labels[flipped]))
            most = [f"{name}: {count}" for name, count in classes.most_common(_MOST_SHOWN)]
            rest = ["…"] if len(classes) > _MOST_SHOWN else []
            texts.append(f"{int(flipped.sum()):,} {what} ({', '.join([*most, *rest])})")
    return ", ".join(texts)


def _lines(
    worst: Sequence[int], baseline: Evidence, candidate: Evidence, dataset: Dataset
) -> list[str]:
    """Return the lines of inputs; both sides may be the same."""
    if not worst:
        return []
    after = candidate.columns()
    before = after if baseline is candidate else baseline.columns()
    lines = []
    for index in worst:
        lines.append(f"{place_of(index, dataset)}: {_cells(index, before, after)}")
    return lines


def largest_losses(losses: Array, most: int = _MOST_SHOWN) -> list[int]:
    """Return the numbers of the largest losses above 0; NaN is the largest."""
    known = np.nan_to_num(losses, nan=np.inf)
    worst = np.argsort(-known, kind="stable")[:most]
    return [int(index) for index in worst if known[index] > 0]


def place_of(index: int, dataset: Dataset) -> str:
    """Return the name of an input in lines: its file, or its row of the arrays."""
    if dataset.files is not None:
        return dataset.files[index]
    return f"row {index if dataset.numbers is None else dataset.numbers[index]}"


def _cells(index: int, before: Columns, after: Columns) -> str:
    cells = []
    for name, values in itertools.islice(after.items(), _MOST_COLUMNS):
        new = _short(values[index])
        old = _short(before[name][index]) if name in before else new
        cells.append(f"{name} {new}" if old == new else f"{name} {old} -> {new}")
    return ", ".join(cells)


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return shortened(" ".join(str(value).split()), _LONGEST_VALUE) or _NOTHING
