"""The test functions that every manifest becomes; the manifest's cases parametrize them.

Each measures through its fixtures, keeps what was measured, and settles, which fails the item where
a limit is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.agent.process import Array
from pytest_mlms.artifacts.fetch import CaseFiles
from pytest_mlms.cases import Case
from pytest_mlms.config import Config
from pytest_mlms.evaluate.accuracy import classify, estimate_accuracy
from pytest_mlms.evaluate.agreement import Tolerance, estimate_agreement
from pytest_mlms.evaluate.departure import search_departure
from pytest_mlms.evaluate.inputs import draw_batches, random_batch
from pytest_mlms.evaluate.limits import judge
from pytest_mlms.evaluate.performance import (
    PerformancePlan,
    ProcessRecord,
    ProcessResult,
    measure_performance,
)
from pytest_mlms.evaluate.reference import Reference, compare_outputs, predict_all
from pytest_mlms.item_result import Judgement
from pytest_mlms.items.item_tracer import ItemTracer
from pytest_mlms.pipeline import Dataset, read_labels
from pytest_mlms.recorder import Recorder
from pytest_mlms.report.agreement import explain_departure, explain_worst, keep_differences
from pytest_mlms.report.artifacts import Predictions, keep_predictions, keep_process
from pytest_mlms.session import Session
from pytest_mlms.upgrade.criteria import criteria_of, interleave_plan_of
from pytest_mlms.upgrade.device_monitor import DeviceMonitor
from pytest_mlms.upgrade.explanation import explain_upgrade
from pytest_mlms.upgrade.interleave import OpenPair
from pytest_mlms.upgrade.output_check import OutputCheck
from pytest_mlms.upgrade.run import UpgradeRun
from pytest_mlms.upgrade.setting import setting_of


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
    names = _class_names(mlms_artifacts.labels, scores.shape[1])
    k = output.top_k.k if output.top_k else 1
    keep_predictions(mlms_recorder, Predictions(scores, labels, names, k))
    estimates = estimate_accuracy(scores, labels)
    mlms_recorder.settle(estimates, judge(mlms_case.limits, estimates), mlms_config.strict)


@pytest.mark.mlms(kind="agreement")
def test_agreement(
    mlms_case: Case,
    mlms_reference: Reference,
    mlms_predictor: Predictor,
    mlms_recorder: Recorder,
    mlms_config: Config,
) -> None:
    """Outputs, best classes and probabilities against those of the reference framework."""
    assert mlms_case.agreement is not None
    tolerance = Tolerance(mlms_case.agreement.rtol, mlms_case.agreement.atol)
    outputs = predict_all(mlms_predictor, mlms_reference.inputs, list(mlms_reference.outputs))
    found = compare_outputs(outputs, mlms_reference, tolerance)
    keep_differences(mlms_recorder, outputs, mlms_reference, found)
    mlms_recorder.note(reference=mlms_reference.identity)
    mlms_recorder.add_log(mlms_reference.log)

    def cause() -> str:
        deviation = found.differences.deviation
        if deviation.max() <= 1:
            return ""
        worst = int(deviation.argmax())
        text = explain_worst(outputs, mlms_reference, found, tolerance)
        search = search_departure(mlms_case, mlms_predictor, mlms_reference, worst, tolerance)
        return f"{text}\n{explain_departure(search)}"

    estimates = estimate_agreement(*found)
    mlms_recorder.settle(estimates, judge(mlms_case.limits, estimates), mlms_config.strict, cause)


@pytest.mark.mlms(kind="performance")
def test_performance(
    mlms_case: Case,
    mlms_dataset: Dataset | None,
    mlms_predictor_factory: Callable[[], AbstractContextManager[Predictor]],
    mlms_recorder: Recorder,
    mlms_tracer: ItemTracer,
    mlms_config: Config,
) -> None:
    """Latency, throughput, memory and start-up over fresh processes."""
    size, seed = mlms_case.batch_size, mlms_case.loaded.manifest.evaluate.seed
    drawn = draw_batches(mlms_dataset, size, seed) if mlms_dataset else []

    def batches_for(predictor: Predictor) -> Sequence[Mapping[str, Array]]:
        return drawn or [random_batch(predictor, size, seed)]

    assert mlms_case.scenario is not None
    plan = PerformancePlan(
        mlms_case.scenario,
        size,
        mlms_config.processes,
        mlms_config.duration,
        mlms_config.budget,
        mlms_case.limits,
    )
    processes: list[ProcessRecord] = []
    mlms_recorder.note(processes=processes)

    def keep(index: int, result: ProcessResult) -> None:
        keep_process(mlms_recorder, index, result)
        processes.append(result.record)

    estimates, decisions = measure_performance(plan, mlms_predictor_factory, batches_for, keep)
    with mlms_tracer.on_fail():
        mlms_recorder.settle(estimates, decisions, mlms_config.strict)


@pytest.mark.mlms(kind="upgrade")
def test_upgrade(
    mlms_case: Case,
    mlms_dataset: Dataset | None,
    mlms_pair_factory: OpenPair,
    mlms_device_monitor: DeviceMonitor,
    mlms_session: Session,
    mlms_recorder: Recorder,
    mlms_config: Config,
) -> None:
    """Compare the candidate stack with the baseline: speed, memory, start-up, outputs, accuracy."""
    size = mlms_case.batch_size
    seed = mlms_case.loaded.manifest.evaluate.seed
    drawn = draw_batches(mlms_dataset, size, seed) if mlms_dataset else []

    def batches_for(predictor: Predictor) -> Sequence[Mapping[str, Array]]:
        return drawn or [random_batch(predictor, size, seed)]

    criteria = criteria_of(mlms_case, mlms_config)
    plan = interleave_plan_of(mlms_case, mlms_config)
    check = OutputCheck(mlms_case, mlms_dataset, criteria.tolerances, mlms_session.scores)
    run = UpgradeRun(criteria, size, check, mlms_recorder, mlms_device_monitor.check)
    result = run.run(plan, mlms_pair_factory, batches_for)
    cpu_shares = mlms_recorder.recording().cpu_shares
    setting = setting_of(mlms_case, mlms_config, cpu_shares, mlms_device_monitor.notes)
    text = explain_upgrade(result, setting)
    judgement = Judgement(result.verdict, result.margin, text=text)
    place = mlms_case.loaded.place("thresholds", "upgrade")
    mlms_recorder.settle_upgrade(judgement, place, mlms_config.strict)


@pytest.mark.mlms(kind="trace")
def test_trace(mlms_tracer: ItemTracer) -> None:
    """Where the time goes, at each level in a run of its own."""
    mlms_tracer.trace_item()


def _class_names(labels: Path | None, count: int) -> list[str]:
    """Return the names of ``count`` classes: those of the file of labels, else their numbers."""
    if labels is None:
        return [str(number) for number in range(count)]
    return read_labels(labels, count)
