"""Scoring of a model's outputs for a dataset: its task turns them into evidence, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.cases import Case
from pytest_mlms.evaluate.inputs import Inputs
from pytest_mlms.evaluate.rows import predict_rows
from pytest_mlms.evaluate.tasks.registry import task_named
from pytest_mlms.evaluate.tasks.task import Array, Evidence
from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.pipeline import Dataset
from pytest_mlms.pipeline.step_files import with_local_files

__all__ = ["Files", "score", "score_case"]

Files = Mapping[str, Path]
"""Local paths of the files that the steps of a manifest name, by what it says there."""


def score(
    batches: Iterable[Mapping[str, Array]], manifest: Manifest, dataset: Dataset, files: Files
) -> Evidence:
    """Return the evidence of a whole dataset.

    ``batches`` are the rows of the outputs that the task scores, by name, a batch at a time; they
    may be computed as they are asked for. ``files`` are those that the steps of outputs name.
    Raises OutputError for outputs that can't be scored, DatasetError for labels that don't fit.
    """
    outputs = [with_local_files(output, files) for output in manifest.scored_outputs]
    scorer = task_named(manifest.task).scorer(outputs, dataset)
    done = 0
    for rows in batches:
        count = len(next(iter(rows.values())))
        scorer.add(dataset.scored(rows), range(done, done + count))
        done += count
    return scorer.evidence()


def score_case(case: Case, predictor: Predictor, dataset: Dataset, files: Files) -> Evidence:
    """Return the evidence of the model of a case, whose outputs are computed for that."""
    manifest = case.loaded.manifest
    outputs = manifest.scored_outputs
    inputs = Inputs.of(case, dataset, predictor)
    batches = predict_rows(predictor, inputs, outputs)
    rows = ({output.name: batch.rows(output.name) for output in outputs} for batch in batches)
    return score(rows, manifest, dataset, files)
