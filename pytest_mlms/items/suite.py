"""The tests that every manifest becomes, each parametrized with the manifest's cases.

A test measures through its fixtures, keeps what was measured, and settles: that fails the item
where a limit is broken. It imports what it measures with when it runs: collection needs only the
names of the tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest

from pytest_mlms.core.errors import DatasetError, OutputError

if TYPE_CHECKING:
    from pytest_mlms.config import Config
    from pytest_mlms.core.records import Launch
    from pytest_mlms.decide.upgrade.agents import AgentPair
    from pytest_mlms.decide.upgrade.compared_inputs import OpenPictures
    from pytest_mlms.decide.upgrade.interleave import OpenPair
    from pytest_mlms.items.device_monitor import DeviceMonitor
    from pytest_mlms.items.item_outputs import ItemOutputs
    from pytest_mlms.items.item_tracer import ItemTracer
    from pytest_mlms.keep.results.recorder import Recorder
    from pytest_mlms.measure.agent.predictor import Predictor
    from pytest_mlms.measure.evaluate.fresh_process import Batches
    from pytest_mlms.measure.evaluate.kept_outputs import Reference
    from pytest_mlms.measure.evaluate.performance_plan import PerformancePlan
    from pytest_mlms.measure.evaluate.process_result import ProcessRecord, ProcessResult
    from pytest_mlms.measure.evaluate.timed_inputs import RandomInputs, TimedInputs
    from pytest_mlms.measure.pipeline import Dataset
    from pytest_mlms.provide.artifacts.fetch import CaseFiles
    from pytest_mlms.provide.cases import Case

pytestmark = pytest.mark.usefixtures("mlms_available")


@pytest.mark.mlms(kind="accuracy")
def test_accuracy(
    mlms_case: Case,
    mlms_artifacts: CaseFiles,
    mlms_dataset: Dataset,
    mlms_outputs: ItemOutputs,
    mlms_recorder: Recorder,
    mlms_config: Config,
) -> None:
    """Measure the quantities of the manifest's task over the whole dataset."""
    from pytest_mlms.measure.evaluate.limits import judge
    from pytest_mlms.measure.evaluate.scoring import estimate_evidence, score
    from pytest_mlms.show.report.predictions import keep_predictions, list_worst_inputs
    from pytest_mlms.show.report.worst_examples import keep_worst_examples

    manifest = mlms_case.loaded.manifest
    batches = mlms_outputs.batches(manifest.scored_outputs, mlms_dataset)
    evidence = score(batches, manifest, mlms_dataset, mlms_artifacts.steps)
    keep_predictions(mlms_recorder, evidence, mlms_dataset.files)
    keep_worst_examples(mlms_recorder, evidence, mlms_dataset)
    estimates = estimate_evidence(evidence, manifest.evaluate.seed)
    decisions = judge(mlms_case.limits, estimates)
    mlms_recorder.settle(
        estimates, decisions, mlms_config.strict, lambda: list_worst_inputs(evidence, mlms_dataset)
    )


@pytest.mark.mlms(kind="agreement")
def test_agreement(
    mlms_case: Case,
    mlms_reference: Reference,
    mlms_outputs: ItemOutputs,
    mlms_recorder: Recorder,
    mlms_config: Config,
) -> None:
    """Compare outputs, best classes and probabilities with the reference framework's."""
    from pytest_mlms.measure.evaluate.agreement import estimate_agreement
    from pytest_mlms.measure.evaluate.closeness import Tolerance
    from pytest_mlms.measure.evaluate.kept_outputs import compare_outputs, search_departure
    from pytest_mlms.measure.evaluate.limits import judge
    from pytest_mlms.show.report.agreement import explain_departure, explain_worst, keep_differences

    limit = mlms_case.agreement
    assert limit is not None, "a manifest without an agreement threshold has no agreement items"
    tolerance = Tolerance(limit.rtol, limit.atol)
    outputs = mlms_outputs.all(mlms_reference.inputs)
    found = compare_outputs(outputs, mlms_reference, tolerance)
    mlms_recorder.note(reference=mlms_reference.identity)
    mlms_recorder.add_log(mlms_reference.log)
    keep_differences(mlms_recorder, outputs, mlms_reference, found)

    def explain_failure() -> str:
        deviation = found.differences.deviation
        if deviation.max() <= 1:
            return ""
        worst = int(deviation.argmax())
        text = explain_worst(outputs, mlms_reference, found, tolerance)
        search = search_departure(mlms_case, mlms_outputs.open, mlms_reference, worst, tolerance)
        return f"{text}\n{explain_departure(search)}"

    estimates = estimate_agreement(*found)
    decisions = judge(mlms_case.limits, estimates)
    mlms_recorder.settle(estimates, decisions, mlms_config.strict, explain_failure)


def _names_shape(test: Callable[..., None]) -> Callable[..., None]:
    """Make a test say of which shape the inputs are that a model refuses."""

    @functools.wraps(test)
    def run(mlms_case: Case, **fixtures: Any) -> None:
        from pytest_mlms.measure.agent.process import Refused

        try:
            test(mlms_case=mlms_case, **fixtures)
        except Refused as error:
            if mlms_case.shape is None:
                raise
            place = mlms_case.loaded.place("evaluate", "shapes", mlms_case.shape)
            sizes = ", ".join(f"{axis}: {size}" for axis, size in mlms_case.sizes.items())
            advice = "correct its sizes, or leave it out"
            raise OutputError(
                f"{place}: the model refuses shape {mlms_case.shape!r} ({sizes}); {advice}\n{error}"
            ) from None

    return run


@pytest.mark.mlms(kind="performance")
@_names_shape
def test_performance(
    mlms_case: Case,
    mlms_artifacts: CaseFiles,
    mlms_dataset: Dataset | None,
    mlms_predictor_factory: Callable[[], AbstractContextManager[Predictor]],
    mlms_device_monitor: DeviceMonitor,
    mlms_recorder: Recorder,
    mlms_config: Config,
    request: pytest.FixtureRequest,
) -> None:
    """Measure latency, throughput, memory and start-up over fresh processes, or under load."""
    from pytest_mlms.config import draw_seed
    from pytest_mlms.measure.evaluate.performance import measure_performance
    from pytest_mlms.measure.evaluate.steadiness import explain_wait

    open_predictor = mlms_device_monitor.watching(mlms_predictor_factory)
    seed = draw_seed(mlms_config.seed)
    batches_for = _timed_inputs(mlms_case, mlms_dataset, seed)
    mlms_recorder.note(inputs_seed=seed)
    if mlms_case.caches == "warm":
        from pytest_mlms.measure.evaluate.timed_inputs import fill_caches

        with mlms_predictor_factory() as predictor:
            fill_caches(predictor, batches_for(predictor))
    records: list[ProcessRecord] = []

    def keep(index: int, result: ProcessResult) -> None:
        mlms_recorder.keep_arrays(f"samples-{index}.npz", result.run.times)
        records.append(result.record)
        mlms_recorder.note(processes=tuple(records))

    if mlms_config.loadgen or mlms_case.load is not None:
        from pytest_mlms.items.loads import measure_under_load

        measured = measure_under_load(
            mlms_case, mlms_artifacts, mlms_config, mlms_recorder, open_predictor, batches_for, keep
        )
    else:
        plan = _performance_plan(mlms_case, mlms_dataset, mlms_config, seed)
        measured = measure_performance(plan, open_predictor, batches_for, keep)

    estimates = measured.estimates
    doubts = mlms_device_monitor.with_doubts(measured.doubts)
    mlms_recorder.note(looks=measured.looks, ended=measured.ended, doubts=doubts)
    mlms_recorder.note(input_groups=measured.groups, inputs_timed=measured.inputs)
    contention = explain_wait([record.waited for record in records], estimates)
    try:
        mlms_recorder.settle(
            estimates,
            measured.decisions,
            mlms_config.strict,
            lambda: contention,
            mlms_device_monitor.problems(),
        )
    except pytest.fail.Exception:
        if mlms_config.trace_on_fail:
            tracer: ItemTracer = request.getfixturevalue("mlms_tracer")
            tracer.trace_after_failure()
        raise
    if contention:
        mlms_recorder.warn_of_contention(contention)


@pytest.mark.mlms(kind="upgrade")
@_names_shape
def test_upgrade(
    mlms_case: Case,
    mlms_launch: Launch,
    mlms_artifacts: CaseFiles,
    mlms_dataset: Dataset | None,
    mlms_pair_factory: OpenPair,
    mlms_unheld_pair: Callable[[], AbstractContextManager[AgentPair]] | None,
    mlms_pictures: OpenPictures | None,
    mlms_device_monitor: DeviceMonitor,
    mlms_recorder: Recorder,
    mlms_config: Config,
) -> None:
    """Compare the candidate stack with the baseline: speed, memory, start-up, outputs, accuracy."""
    from pytest_mlms.decide.upgrade.compared_inputs import Extent
    from pytest_mlms.decide.upgrade.criteria import criteria_of, interleave_plan_of
    from pytest_mlms.decide.upgrade.explanation import explain_upgrade
    from pytest_mlms.decide.upgrade.output_check import OutputCheck
    from pytest_mlms.decide.upgrade.run import UpgradeRun
    from pytest_mlms.decide.upgrade.setting import setting_of
    from pytest_mlms.keep.results.line import Judgement

    criteria = criteria_of(mlms_case, mlms_config)
    plan = interleave_plan_of(mlms_case, mlms_config)
    check = OutputCheck(
        case=mlms_case,
        dataset=mlms_dataset,
        files=mlms_artifacts.steps,
        tolerances=criteria.tolerances,
        extent=Extent(mlms_config.outputs, mlms_config.budget, plan.seed),
        open_unheld=mlms_unheld_pair,
        open_pictures=mlms_pictures,
    )
    run = UpgradeRun(
        criteria, mlms_case.batch_size, check, mlms_recorder, mlms_device_monitor.check
    )
    batches_for: Callable[[Predictor], Batches]
    batches_for = _timed_inputs(mlms_case, mlms_dataset, plan.seed)
    if mlms_case.load is not None:
        from pytest_mlms.items.loads import load_plan_of, queried_batches

        plan = plan.under_load(load_plan_of(mlms_case, mlms_artifacts, mlms_config))
        batches_for = queried_batches(batches_for)
    result = run.run(plan, mlms_device_monitor.watching(mlms_pair_factory), batches_for)
    cpu_shares = mlms_recorder.cpu_shares()
    setting = setting_of(
        mlms_case,
        mlms_config,
        cpu_shares,
        mlms_device_monitor.notes,
        mlms_recorder.noted("changed_packages"),
        (mlms_recorder.noted("cache_bytes_against"), mlms_recorder.noted("cache_bytes")),
        (mlms_recorder.noted("launch_against").exact, mlms_launch.lock or mlms_launch.packages),
    )
    text = explain_upgrade(result, setting)
    judgement = Judgement(result.verdict, result.margin, text=text)
    place = mlms_case.loaded.place("thresholds", "upgrade")
    mlms_recorder.settle_upgrade(judgement, place, mlms_config.strict)


@pytest.mark.mlms(kind="trace")
def test_trace(mlms_tracer: ItemTracer) -> None:
    """Trace the case, at each level in a run of its own."""
    mlms_tracer.trace_item()


@pytest.mark.mlms(kind="soak")
def test_soak(
    mlms_case: Case,
    mlms_dataset: Dataset | None,
    mlms_device_monitor: DeviceMonitor,
    mlms_recorder: Recorder,
    mlms_config: Config,
    request: pytest.FixtureRequest,
) -> None:
    """Call a process for a long time, or one of either stack in turns: what time does to it."""
    from pytest_mlms.config import draw_seed
    from pytest_mlms.core.errors import Crashed
    from pytest_mlms.decide.upgrade.interleave import KilledOnce
    from pytest_mlms.items.loads import open_side, open_sides, settle_crash, soak

    seed = draw_seed(mlms_config.seed)
    batches_for = _timed_inputs(mlms_case, mlms_dataset, seed)
    mlms_recorder.note(inputs_seed=seed)
    is_alone = mlms_case.against is None
    factory = request.getfixturevalue("mlms_predictor_factory" if is_alone else "mlms_pair_factory")
    open_processes = mlms_device_monitor.watching(factory)

    def soak_once() -> None:
        with (open_side if is_alone else open_sides)(open_processes, batches_for) as opened:
            soak(mlms_case, opened, mlms_config, mlms_recorder, mlms_device_monitor)

    try:
        KilledOnce().unless_killed(soak_once)
    except Crashed as error:
        settle_crash(mlms_case, error, mlms_recorder, mlms_config)


def _timed_inputs(case: Case, dataset: Dataset | None, run_seed: int) -> TimedInputs | RandomInputs:
    """Return the inputs that a case is timed with: draws of the dataset, else random ones."""
    from pytest_mlms.measure.evaluate.timed_inputs import RandomInputs, TimedInputs

    if dataset is None:
        return RandomInputs(case, run_seed)
    evaluate = case.loaded.manifest.evaluate
    timed = TimedInputs(dataset, case.batch_size, evaluate.seed, run_seed)
    if evaluate.by_group and not timed.is_mixed:
        place = case.loaded.place("evaluate", "shapes")
        raise DatasetError(f"{place}: all inputs of the dataset have one shape; leave 'shapes' out")
    return timed


def _performance_plan(
    case: Case, dataset: Dataset | None, config: Config, seed: int
) -> PerformancePlan:
    """Return the plan of a case whose processes are timed without a load."""
    from pytest_mlms.measure.evaluate.output_sweep import own_rules
    from pytest_mlms.measure.evaluate.performance_plan import EARLY_PROCESSES, PerformancePlan

    assert case.scenario is not None, "every performance item has a scenario"
    batch_sizes = None
    if any(limit.quantity == "batch_agreement" for limit in case.limits):
        from pytest_mlms.measure.evaluate.rows import BatchSizes

        batch_sizes = BatchSizes(case, dataset, seed)
    return PerformancePlan(
        scenario=case.scenario,
        batch_size=case.batch_size,
        processes=config.processes,
        duration=config.duration,
        budget=config.budget,
        limits=case.limits,
        by_group=case.has_dataset and case.loaded.manifest.evaluate.by_group,
        early=0 if config.measures_in_full else EARLY_PROCESSES,
        batch_sizes=batch_sizes,
        rules=functools.partial(own_rules, case),
    )
