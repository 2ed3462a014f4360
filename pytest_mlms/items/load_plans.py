"""Plans of items under load, made of a case and the options."""

from __future__ import annotations

import functools

from pytest_mlms.config import Config
from pytest_mlms.manifest.load import shown
from pytest_mlms.manifest.scenarios import Replay
from pytest_mlms.measure.agent.load import Batcher
from pytest_mlms.measure.evaluate.load_plan import LoadItemPlan
from pytest_mlms.measure.evaluate.loadgen import LoadGenItemPlan
from pytest_mlms.measure.evaluate.output_sweep import own_rules
from pytest_mlms.measure.load.arrivals import read_arrivals
from pytest_mlms.provide.artifacts.fetch import CaseFiles
from pytest_mlms.provide.cases import Case


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
