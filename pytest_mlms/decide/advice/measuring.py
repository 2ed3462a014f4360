"""The measuring of a candidate, as items do it: its files, its stack, fresh processes, its answers.

Who calls holds the device.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import NormalDist

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Estimate, Limit
from pytest_mlms.core.statistics import Interval, wilson_interval
from pytest_mlms.core.waits import Waiting
from pytest_mlms.decide.advice.candidates import Candidate
from pytest_mlms.measure.agent.channel import temporary_log
from pytest_mlms.measure.agent.launching import hold_device, launch_case
from pytest_mlms.measure.agent.opening import Caches, PredictorSpec, open_predictor
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.doubts import describe_doubts
from pytest_mlms.measure.evaluate.fresh_process import measure_process
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.output_sweep import own_rules
from pytest_mlms.measure.evaluate.performance import SameOutputs
from pytest_mlms.measure.evaluate.performance_plan import PerformancePlan, calls_needed
from pytest_mlms.measure.evaluate.process_result import ProcessResult, interval_of_calls
from pytest_mlms.measure.evaluate.rows import predict_rows
from pytest_mlms.measure.evaluate.scoring import estimate_evidence, score
from pytest_mlms.measure.evaluate.steadiness import explain_wait
from pytest_mlms.measure.evaluate.tasks.task import Evidence
from pytest_mlms.measure.evaluate.timed_inputs import RandomInputs, TimedInputs, fill_caches
from pytest_mlms.measure.pipeline import Dataset, without_corrupt
from pytest_mlms.measure.pipeline.dataset import open_dataset_of
from pytest_mlms.project import Project, download_limits
from pytest_mlms.provide.artifacts.fetch import CaseFiles, fetch_files
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.host.capabilities import gather
from pytest_mlms.provide.host.matching import check_hardware
from pytest_mlms.provide.stacks.installers import Show

_TIMEOUT = 600.0  # seconds for a reply, where the settings say none
_LEAST = 1e-300  # in place of a limit: an objective needs as many calls as one


@dataclass(frozen=True)
class Means:
    """The means of measuring candidates.

    ``duration`` and ``budget`` of a process are in seconds, ``seed`` draws the timed inputs, and
    ``folders`` has what is removed at the end.
    """

    predictors: Mapping[str, Path]
    cache: Path
    project: Project
    allow_code: bool
    duration: float
    budget: float
    seed: int
    objective: str
    show: Show
    waiting: Waiting
    folders: contextlib.ExitStack


class Opened:
    """A candidate under ``limits`` whose files are here and whose stack is made.

    Making one raises MlmsError for what can't be measured.
    """

    def __init__(self, candidate: Candidate, limits: Sequence[Limit], means: Means) -> None:
        self.candidate = candidate
        self._limits = limits
        self._means = means
        self._case = candidate.case
        for mark in self._case.marks:
            place = self._case.loaded.place("marks", mark.name)
            raise MlmsError(f"{place}: it is marked {mark.name}: {mark.reason}")
        check_hardware(self._case, partial(gather, None, means.cache, means.predictors))
        self._spec = self._new_spec()
        self._caches = Caches(means.folders)
        self._is_filled = self._case.caches != "warm"
        self._results: list[ProcessResult] = []
        self._outputs = SameOutputs(self._plan)

    @cached_property
    def _files(self) -> CaseFiles:
        means = self._means
        limits = download_limits(means.project)
        return fetch_files(
            self._case.loaded, self._case.model, means.cache, limits=limits, say=means.show
        )

    def _new_spec(self) -> PredictorSpec:
        means, case = self._means, self._case
        predictor = means.predictors[case.stack.framework]
        launch = launch_case(
            case,
            self._files.model,
            predictor,
            means.cache,
            passthrough=means.project.value("env_passthrough") or (),
            show=means.show,
        )
        return PredictorSpec(
            case=case,
            launch=launch,
            predictor=predictor,
            files=self._files.model,
            log=Path(),
            timeout=means.project.value("timeout") or _TIMEOUT,
            allow_code=means.allow_code,
            waiting=means.waiting,
        )

    @cached_property
    def _dataset(self) -> Dataset | None:
        loaded, files = self._case.loaded, self._files
        entry = loaded.manifest.dataset
        if entry is None or files.dataset is None:
            return None
        dataset = open_dataset_of(loaded, files.dataset, files.steps)
        return without_corrupt(dataset, entry.skip_corrupt)

    @cached_property
    def _timed(self) -> TimedInputs | RandomInputs:
        seed = self._means.seed
        if self._dataset is None:
            return RandomInputs(self._case, seed)
        own_seed = self._case.loaded.manifest.evaluate.seed
        return TimedInputs(self._dataset, self._case.batch_size, own_seed, seed)

    @property
    def _plan(self) -> PerformancePlan:
        quantities = [limit for limit in self._limits if is_timed(limit)]
        unlimited = math.inf if QUANTITIES[self._means.objective].bound == "max" else _LEAST
        objective = Limit(self._means.objective, unlimited, self._case.place())
        return PerformancePlan(
            scenario=self.candidate.scenario,
            batch_size=self._case.batch_size,
            processes=1,
            duration=self._means.duration,
            budget=self._means.budget,
            limits=[*quantities, objective],
            rules=partial(own_rules, self._case),
        )

    @contextlib.contextmanager
    def _open(self) -> Iterator[Predictor]:
        with (
            temporary_log("mlms-advise-") as log,
            self._caches.given(replace(self._spec, log=log), "b") as spec,
            open_predictor(spec) as predictor,
        ):
            yield predictor

    def measure(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the quantities of a fresh process, and the slack of those that haven't settled.

        Raises MlmsError where it can't tell one.
        """
        if not self._is_filled:
            with self._open() as predictor:
                fill_caches(predictor, self._timed(predictor))
            self._is_filled = True
        plan = self._plan
        with self._open() as predictor:
            batches = self._timed(predictor)
            result = measure_process(plan, predictor, batches, early=False)
            self._outputs.check(len(self._results) + 1, predictor, result.run, batches)
        self._results.append(result)
        quantities = {limit.quantity for limit in plan.limits}
        return {name: _value(name, result) for name in quantities}, _slack(quantities, result)

    def reach(self, quantity: str, confidence: float) -> Interval:
        """Return what the calls of all processes tell of a percentile; nothing of others."""
        percent = QUANTITIES[quantity].percent
        if not percent or not self._results:
            return Interval(math.inf, 0.0)
        return interval_of_calls(percent, self._results, confidence)

    @property
    def doubts(self) -> str:
        """A remark on its processes for people; "" for none."""
        if not self._results:
            return ""
        wait = explain_wait([result.record.waited for result in self._results], {})
        return "; ".join(filter(None, (describe_doubts(self._results), wait)))

    def answers(self, risk: float) -> tuple[dict[str, Estimate], dict[str, Estimate]]:
        """Return the quantities of an accuracy item, and with intervals of this risk at an end."""
        evidence = self.evidence()
        estimates = estimate_evidence(evidence, self._case.loaded.manifest.evaluate.seed)
        wide = {name: widened(estimate, risk) for name, estimate in estimates.items()}
        for name, right in evidence.shares.items():
            interval = wilson_interval(int(right.sum()), len(evidence), 1 - 2 * risk)
            wide[name] = replace(estimates[name], low=interval.low, high=interval.high)
        return estimates, wide

    def evidence(self) -> Evidence:
        """Return what it answers for each input of its dataset, against the labels."""
        if self._dataset is None:
            raise MlmsError(f"{self._case.loaded.place()}: there is no dataset; add one")
        manifest = self._case.loaded.manifest
        with self._open() as predictor:
            inputs = Inputs.of(self._case, self._dataset, predictor)
            names = [output.name for output in manifest.scored_outputs]
            rows = predict_rows(predictor, inputs, manifest.outputs)
            batches = ({name: batch.rows(name) for name in names} for batch in rows)
            return score(batches, manifest, self._dataset, self._files.steps)


def _value(name: str, result: ProcessResult) -> float:
    estimator = QUANTITIES[name].estimator
    assert estimator is not None, "no other quantities are asked for"
    missing = estimator.missing(result)
    needed = calls_needed(estimator.percent)
    if not missing and result.record.calls < needed:
        missing = f"needs {needed} calls, had {result.record.calls}: raise --budget"
    value = estimator.value(result)
    if missing or math.isnan(value):
        raise MlmsError(f"{name}: {missing or 'it was not measured'}")
    return 1 / value if estimator.is_rate else value


def _slack(quantities: set[str], result: ProcessResult) -> dict[str, float]:
    """Return the logarithm by which quantities of calls may change if these go on changing."""
    if result.settling.is_settled:
        return {}
    slack = math.log(result.settling.reach.room)
    of_calls = {}
    for name in quantities:
        estimator = QUANTITIES[name].estimator
        if estimator is not None and estimator.of_calls:
            of_calls[name] = slack
    return of_calls


def widened(estimate: Estimate, risk: float) -> Estimate:
    """Return an estimate with the interval of another risk at each end, as if it were normal."""
    if estimate.confidence == 1:  # it is computed over all that there is
        return estimate
    normal = NormalDist()
    factor = normal.inv_cdf(1 - risk) / normal.inv_cdf((1 + estimate.confidence) / 2)
    low = estimate.value - factor * (estimate.value - estimate.low)
    high = estimate.value + factor * (estimate.high - estimate.value)
    return replace(estimate, low=low, high=high)


def is_timed(limit: Limit) -> bool:
    """Return whether a limit is on what processes differ in; else it is on answers."""
    return QUANTITIES[limit.quantity].kind == "performance"


def hold_all(cases: Sequence[Case], waiting: Waiting) -> AbstractContextManager[None]:
    """Return a context in which nobody else on this host measures on the cores of these cases."""
    cores = {core for case in cases for core in case.stack.cores}
    if not all(case.stack.cores for case in cases):
        cores = set()  # all that this process may use
    stack = replace(cases[0].stack, cores=tuple(sorted(cores)))
    return hold_device(replace(cases[0], stack=stack), None, waiting)
