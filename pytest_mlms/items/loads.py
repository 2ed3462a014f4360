"""Measurement of an item under load, by a plan that is made of its case and the options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager

from pytest_mlms.config import Config
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.manifest.load import shown
from pytest_mlms.manifest.scenarios import Peak, Replay
from pytest_mlms.measure.agent.load import Batcher
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.fresh_process import Batches
from pytest_mlms.measure.evaluate.load_performance import measure_load, measure_peak
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.loadgen import LoadGenItemPlan, measure_by_loadgen
from pytest_mlms.measure.evaluate.output_sweep import own_rules
from pytest_mlms.measure.evaluate.performance import Measurement
from pytest_mlms.measure.evaluate.process_result import ProcessResult
from pytest_mlms.measure.load.arrivals import read_arrivals
from pytest_mlms.provide.artifacts.fetch import CaseFiles
from pytest_mlms.provide.cases import Case
from pytest_mlms.show.report.artifacts import keep_log, keep_part, keep_run, note_peak


def measure_under_load(
    case: Case,
    files: CaseFiles,
    config: Config,
    recorder: Recorder,
    open_predictor: Callable[[], AbstractContextManager[Predictor]],
    batches_for: Callable[[Predictor], Batches],
    keep: Callable[[int, ProcessResult], None],
) -> Measurement:
    """Measure a case by LoadGen, by the search for its peak, or under its load.

    ``keep`` gets the number and the result of each process under a load; of LoadGen and of a search
    the recorder keeps logs and runs instead.
    """
    queried = queried_batches(batches_for)
    if config.loadgen:
        plan = loadgen_plan_of(case, config)
        keep_its_log = functools.partial(keep_log, recorder)
        return measure_by_loadgen(plan, open_predictor, queried, keep_its_log)
    load_plan = load_plan_of(case, files, config)
    keep_its_part = functools.partial(keep_part, recorder)
    if isinstance(case.load, Peak):
        keep_its_run = functools.partial(keep_run, recorder)
        note = functools.partial(note_peak, recorder)
        return measure_peak(load_plan, open_predictor, queried, keep_its_run, keep_its_part, note)
    return measure_load(load_plan, open_predictor, queried, keep, keep_its_part)


def queried_batches(timed: Callable[[Predictor], Batches]) -> Callable[[Predictor], Batches]:
    """Return the batches of a load, whose samples are the same in each process."""
    drawn: list[Batches] = []

    def batches_for(predictor: Predictor) -> Batches:
        if not drawn:
            drawn.append(timed(predictor))
        return drawn[0]

    return batches_for


def loadgen_plan_of(case: Case, config: Config) -> LoadGenItemPlan:
    """Return the plan of a case that LoadGen measures."""
    evaluate = case.loaded.manifest.evaluate
    assert case.scenario is not None, "every performance item has a scenario"
    return LoadGenItemPlan(
        scenario=evaluate.scenario_labels[case.scenario],
        place=case.scenario_place,
        seed=evaluate.seed,
        duration=config.duration,
        budget=config.budget,
        valid=config.loadgen == "valid",
        limits=case.limits,
        instances=evaluate.instances,
        batcher=_batcher_of(case),
    )


def load_plan_of(case: Case, files: CaseFiles, config: Config) -> LoadItemPlan:
    """Return the plan of a case under load. Raises MlmsError for a wrong file of arrivals."""
    load = case.load
    assert load is not None, f"{case.id} is no load"
    evaluate = case.loaded.manifest.evaluate
    arrivals = None
    if isinstance(load, Replay):
        assert files.arrivals is not None, "it is fetched with the files of the case"
        arrivals = read_arrivals(shown(files.arrivals), load.speed)
    return LoadItemPlan(
        load=load,
        place=case.scenario_place,
        batch_size=case.batch_size,
        processes=config.processes,
        duration=config.duration,
        budget=config.budget,
        limits=case.limits,
        seed=evaluate.seed,
        instances=evaluate.instances,
        batcher=_batcher_of(case),
        arrivals=arrivals,
        rules=functools.partial(own_rules, case),
    )


def _batcher_of(case: Case) -> Batcher | None:
    keys = case.loaded.manifest.evaluate.batcher
    if keys is None:
        return None
    return Batcher(keys.max_batch, round(keys.max_delay * 1e9))
