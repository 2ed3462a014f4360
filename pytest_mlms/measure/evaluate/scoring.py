"""Scoring of a model's outputs for a dataset: its task turns them into evidence, batch by batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import numpy as np

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.measure.evaluate.tasks.registry import task_named
from pytest_mlms.measure.evaluate.tasks.task import Array, Evidence
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.step_files import with_local_files

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
