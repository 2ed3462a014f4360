"""The test functions that every manifest becomes; the manifest's cases parametrize them.

Each measures through its fixtures, keeps what was measured, and settles, which fails the item where a limit is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest

from pytest_mlms.accuracy import estimate_accuracy
from pytest_mlms.agent import Array
from pytest_mlms.cases import Case
from pytest_mlms.gate import judge
from pytest_mlms.measure import Plan, ProcessResult, classify, draw_batches, measure_performance, random_batch
from pytest_mlms.options import Config
from pytest_mlms.pipeline import Dataset, read_labels
from pytest_mlms.predictor import Predictor
from pytest_mlms.provision.artifacts import CaseFiles
from pytest_mlms.recorder import Recorder
from pytest_mlms.report.artifacts import keep_predictions, keep_process


@pytest.mark.mlms(kind="accuracy")
def test_accuracy(
    mlms_case: Case,
    mlms_artifacts: CaseFiles,
    mlms_dataset: Dataset,
    mlms_predictor: Predictor,
    mlms_recorder: Recorder,
    mlms_config: Config,
) -> None:
    """Top-1 and top-5 over the whole dataset."""
    output = mlms_case.loaded.manifest.classification
    assert output is not None
    scores, labels = classify(mlms_predictor, mlms_dataset, output, mlms_case.batch_size)
    classes = scores.shape[1]
    names = read_labels(mlms_artifacts.labels, classes) if mlms_artifacts.labels else [str(c) for c in range(classes)]
    keep_predictions(mlms_recorder, scores, labels, output.top_k.k if output.top_k else 1, names)
    estimates = estimate_accuracy(scores, labels)
    mlms_recorder.settle(estimates, judge(mlms_case.limits, estimates), mlms_config.strict)


@pytest.mark.mlms(kind="performance")
def test_performance(
    mlms_case: Case,
    mlms_dataset: Dataset | None,
    mlms_predictor_factory: Callable[[], AbstractContextManager[Predictor]],
    mlms_recorder: Recorder,
    mlms_config: Config,
) -> None:
    """Latency, throughput, memory and start-up over fresh processes."""
    size, seed = mlms_case.batch_size, mlms_case.loaded.manifest.evaluate.seed
    drawn = draw_batches(mlms_dataset, size, seed) if mlms_dataset else []

    def batches_for(predictor: Predictor) -> Sequence[Mapping[str, Array]]:
        return drawn or random_batch(predictor, size, seed)

    assert mlms_case.scenario is not None
    plan = Plan(
        mlms_case.scenario, size, mlms_config.processes, mlms_config.duration, mlms_config.budget, mlms_case.limits
    )
    processes: list[dict[str, Any]] = []
    mlms_recorder.note(processes=processes)

    def keep(index: int, result: ProcessResult) -> None:
        keep_process(mlms_recorder, index, result)
        processes.append(result.as_dict())

    estimates, decisions = measure_performance(plan, mlms_predictor_factory, batches_for, keep)
    mlms_recorder.settle(estimates, decisions, mlms_config.strict)
