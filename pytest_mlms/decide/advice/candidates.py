"""Candidates of real models: what they are made of, and how one is measured as items are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Decision, Limit
from pytest_mlms.core.statistics import Interval
from pytest_mlms.core.waits import Waiting, in_silence
from pytest_mlms.manifest.load import LoadedManifest, option_problems
from pytest_mlms.measure.agent.channel import temporary_log
from pytest_mlms.measure.agent.launching import hold_device, launch_case
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.evaluate.fresh_process import measure_process
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.limits import judge
from pytest_mlms.measure.evaluate.output_sweep import own_rules
from pytest_mlms.measure.evaluate.performance import SameOutputs
from pytest_mlms.measure.evaluate.performance_plan import PerformancePlan
from pytest_mlms.measure.evaluate.process_result import ProcessResult, interval_of_calls
from pytest_mlms.measure.evaluate.rows import predict_rows
from pytest_mlms.measure.evaluate.scoring import estimate_evidence, score
from pytest_mlms.measure.evaluate.timed_inputs import RandomInputs, TimedInputs
from pytest_mlms.measure.pipeline import Dataset, open_dataset, without_corrupt
from pytest_mlms.measure.pipeline.step_files import class_numbers_of, with_local_files
from pytest_mlms.provide.artifacts.fetch import CaseFiles, fetch_files
from pytest_mlms.provide.cases import Case, cases_of
from pytest_mlms.provide.stacks.installers import Show

_LONGEST = 600.0  # seconds for a reply
_LEAST = 1e-300  # in place of a limit: an objective needs as many calls as one


@dataclass(frozen=True)
class Choices:
    """What candidates vary beside models and stacks; what is empty is as the manifest has it."""

    batch_sizes: Sequence[int] = ()
    threads: Sequence[int] = ()
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """A case with settings of its own, by which people tell it from others."""

    case: Case
    scenario: str
    options: Mapping[str, Any]

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.words(with_manifest=True)

    def words(self, with_manifest: bool) -> str:
        """Return what tells it from others of its manifest, or of several."""
        words = [self.case.loaded.manifest.name] if with_manifest else []
        words.append(self.case.stack.label)
        words += [self.case.model.variant] if self.case.model.variant else []
        words += [self.case.device] if self.case.device != "cpu" else []
        words.append(f"b{self.case.batch_size}")
        words += [f"t{self.case.threads}"] if self.case.threads else []
        words += [f"{name}={value}" for name, value in self.options.items()]
        return " ".join(words)

    @property
    def answering(self) -> object:
        """What its outputs depend on."""
        return (
            self.case.loaded.path,
            self.case.model.label,
            self.case.stack.name,
            self.case.device,
        )


def candidates_of(
    loaded: LoadedManifest,
    stacks_of: Callable[[str], Sequence[Any]],
    choices: Choices,
    predictors: Mapping[str, Path],
) -> Iterator[Candidate]:
    """Yield the candidates of a manifest, each once; options only for frameworks that take them."""
    evaluate = loaded.manifest.evaluate
    alone = [entry.name for entry in evaluate.scenarios if entry.load is None]
    scenario = (alone or ["single_stream"])[0]
    seen = set()
    for case in cases_of(loaded, "accuracy", stacks_of, lambda framework: None):
        known: dict[str, list[tuple[str, Any] | None]] = {}
        for name, values in choices.options.items():
            takes = [
                value
                for value in values
                if not [*option_problems(case.stack.framework, {name: value}, predictors)]
            ]
            known[name] = [*[(name, value) for value in takes]] or [None]
        sizes = choices.batch_sizes or evaluate.batch_sizes
        counts: list[int | None] = [*choices.threads] or [case.threads]
        for size, threads, options in product(sizes, counts, product(*known.values())):
            chosen = dict(option for option in options if option is not None)
            stack = replace(
                case.stack,
                threads=threads,
                model_options=tuple({**dict(case.stack.model_options), **chosen}.items()),
            )
            made = replace(case, kind="performance", stack=stack, batch_size=size)
            found = Candidate(made, scenario, chosen)
            if found.label not in seen:
                seen.add(found.label)
                yield found


@dataclass(frozen=True)
class Means:
    """What candidates are measured with; ``duration`` and ``budget`` are in seconds."""

    predictors: Mapping[str, Path]
    cache: Path
    allow_code: bool
    duration: float
    budget: float
    limits: Sequence[Limit]
    objective: str
    show: Show = lambda step: None
    waiting: Waiting = in_silence
    passthrough: Sequence[str] = ()


class Opened:
    """A candidate whose files are here, and whose stack is made; its processes are kept."""

    def __init__(self, candidate: Candidate, means: Means) -> None:
        self.candidate = candidate
        self.results: list[ProcessResult] = []
        self._means = means
        self._case = candidate.case
        self._outputs = SameOutputs(self._plan)

    @cached_property
    def _files(self) -> CaseFiles:
        return fetch_files(
            self._case.loaded, self._case.model, self._means.cache, say=self._means.show
        )

    @cached_property
    def _dataset(self) -> Dataset | None:
        loaded, files = self._case.loaded, self._files
        entry = loaded.manifest.dataset
        if entry is None or files.dataset is None:
            return None
        inputs = [with_local_files(spec, files.steps) for spec in loaded.manifest.inputs]
        classes = class_numbers_of(loaded.manifest, files.steps)
        place = loaded.place("dataset", "source")
        labels = loaded.manifest.label_form
        dataset = open_dataset(files.dataset, inputs, place, entry.source, labels, classes)
        return without_corrupt(dataset, entry.skip_corrupt)

    @cached_property
    def _timed(self) -> TimedInputs | RandomInputs:
        if self._dataset is None:
            return RandomInputs(self._case, 0)
        seed = self._case.loaded.manifest.evaluate.seed
        return TimedInputs(self._dataset, self._case.batch_size, seed, 0)

    @cached_property
    def _spec(self) -> PredictorSpec:
        means, case = self._means, self._case
        predictor = means.predictors[case.stack.framework]
        launch = launch_case(
            case,
            self._files.model,
            predictor,
            means.cache,
            passthrough=means.passthrough,
            show=means.show,
        )
        files = self._files.model
        log = Path()
        return PredictorSpec(
            case, launch, predictor, files, log, _LONGEST, means.allow_code, means.waiting
        )

    @property
    def _plan(self) -> PerformancePlan:
        quantities = [limit for limit in self._means.limits if _is_timed(limit)]
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

    def measure(self) -> dict[str, float]:
        """Return the quantities of a fresh process. Raises MlmsError where it can't tell one."""
        plan = self._plan
        with (
            hold_device(self._case, None, self._means.waiting),
            temporary_log("mlms-advise-") as log,
            open_predictor(replace(self._spec, log=log)) as predictor,
        ):
            batches = self._timed(predictor)
            result = measure_process(plan, predictor, batches, early=False)
            self._outputs.check(len(self.results) + 1, predictor, result.run, batches)
        self.results.append(result)
        values = {}
        for limit in plan.limits:
            estimator = QUANTITIES[limit.quantity].estimator
            assert estimator is not None, "the command takes no other quantities"
            missing = estimator.missing(result)
            value = estimator.value(result)
            if missing or math.isnan(value):
                raise MlmsError(f"{limit.quantity}: {missing or 'it was not measured'}")
            values[limit.quantity] = 1 / value if estimator.is_rate else value
        return values

    def reach(self, quantity: str, confidence: float) -> Interval:
        """Return what the calls of all processes tell of a percentile; nothing of others."""
        percent = QUANTITIES[quantity].percent
        if not percent or not self.results:
            return Interval(math.inf, 0.0)
        return interval_of_calls(percent, self.results, confidence)

    def judge_answers(self) -> list[Decision]:
        """Return the decisions of an accuracy item on the limits that are about answers."""
        limits = [limit for limit in self._means.limits if not _is_timed(limit)]
        if self._dataset is None:
            place = self._case.loaded.place()
            raise MlmsError(f"{place}: there is no dataset to measure {limits[0].quantity} with")
        manifest = self._case.loaded.manifest
        with (
            hold_device(self._case, None, self._means.waiting),
            temporary_log("mlms-advise-") as log,
            open_predictor(replace(self._spec, log=log)) as predictor,
        ):
            inputs = Inputs.of(self._case, self._dataset, predictor)
            names = [output.name for output in manifest.scored_outputs]
            rows = predict_rows(predictor, inputs, manifest.outputs)
            batches = ({name: batch.rows(name) for name in names} for batch in rows)
            evidence = score(batches, manifest, self._dataset, self._files.steps)
        return judge(limits, estimate_evidence(evidence, manifest.evaluate.seed))


def _is_timed(limit: Limit) -> bool:
    return QUANTITIES[limit.quantity].kind == "performance"
