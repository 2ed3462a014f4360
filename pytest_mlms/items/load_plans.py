"""Plans of items under load, made of a case and the options."""

from __future__ import annotations

from pytest_mlms.agent.load import Batcher
from pytest_mlms.cases import Case
from pytest_mlms.config import Config
from pytest_mlms.evaluate.load_plan import LoadItemPlan
from pytest_mlms.load.arrivals import read_arrivals
from pytest_mlms.manifest.load import shown
from pytest_mlms.manifest.scenarios import Replay

__all__ = ["load_plan_of"]


def load_plan_of(case: Case, config: Config) -> LoadItemPlan:
    """Return the plan of a case under load. Raises MlmsError for a wrong file of arrivals."""
    load = case.load
    assert load is not None, f"{case.id} is no load"
    evaluate = case.loaded.manifest.evaluate
    batcher = None
    if evaluate.batcher is not None:
        delay = round(evaluate.batcher.max_delay * 1e9)
        batcher = Batcher(evaluate.batcher.max_batch, delay)
    arrivals = None
    if isinstance(load, Replay):
        arrivals = read_arrivals(shown(case.loaded.path.parent / load.arrivals), load.speed)
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
        batcher=batcher,
        arrivals=arrivals,
    )
