"""Candidates: models on stacks with settings, and what of their manifests can't be advised on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Limit, Stack
from pytest_mlms.core.tasks import facts_of
from pytest_mlms.manifest.load import LoadedManifest, option_problems
from pytest_mlms.manifest.scenarios import measures
from pytest_mlms.provide.cases import Case, cases_of

NOT_JUDGED = ("batch_agreement",)
"""Quantities of calls one after the other that only items measure."""


@dataclass(frozen=True)
class Choices:
    """Settings to vary beside models and stacks; an empty one is as the manifest has it.

    ``gpus`` takes all of the manifest's devices, where nothing is measured on this machine.
    """

    batch_sizes: Sequence[int] = ()
    threads: Sequence[int] = ()
    options: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    gpus: bool = False


@dataclass(frozen=True)
class Candidate:
    """A performance case with settings of its own, by which people tell it from others."""

    case: Case
    options: Mapping[str, Any]

    @property
    def scenario(self) -> str:
        """The scenario that its calls are timed in."""
        assert self.case.scenario is not None, "candidates are made with one"
        return self.case.scenario

    @property
    def label(self) -> str:
        """Its name in messages."""
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
    def place(self) -> str:
        """The host that it runs on, "" for this one."""
        return ""

    @property
    def answering(self) -> object:
        """The settings that its outputs depend on: all but threads."""
        case = self.case
        options = tuple(case.options.items())
        return (case.loaded.path, case.model.label, case.stack.name, options, case.batch_size)

    @property
    def own_limits(self) -> list[Limit]:
        """The limits of its manifest that judge it, on accuracy and on calls."""
        accuracy = replace(self.case, kind="accuracy", scenario=None)
        found = [*self.case.limits, *accuracy.limits]
        return [limit for limit in found if limit.quantity not in NOT_JUDGED]


def find_candidates(
    manifests: Sequence[LoadedManifest],
    stacks_for: Callable[[str, set[str]], Sequence[Stack]],
    choices: Choices,
    predictors: Mapping[str, Path],
) -> list[Candidate]:
    """Return the candidates of manifests, each once.

    ``stacks_for`` returns the stacks that run a framework, of those that a manifest offers. Raises
    MlmsError for what can't be advised on, or not be compared.
    """
    found: list[Candidate] = []
    for loaded in manifests:
        offered = {model.name for model in loaded.manifest.models}
        stacks = {name: stacks_for(name, offered) for name in offered}
        found += _candidates_of(loaded, stacks.__getitem__, choices, predictors)
    if not found:
        raise MlmsError("no model of the manifests is for these stacks; name others by --stack")
    _check_options(found, choices, predictors)
    _check_alike(found)
    return found


def _candidates_of(
    loaded: LoadedManifest,
    stacks_of: Callable[[str], Sequence[Stack]],
    choices: Choices,
    predictors: Mapping[str, Path],
) -> Iterator[Candidate]:
    """Yield the candidates of a manifest; options only for frameworks that take them."""
    scenario = _scenario_of(loaded, choices.gpus)
    sizes = choices.batch_sizes or loaded.manifest.evaluate.batch_sizes
    seen = set()
    for case in cases_of(loaded, "accuracy", stacks_of, lambda framework: None):
        _check_stack(case.stack, choices)
        counts: list[int | None] = [*choices.threads] or [case.threads]
        tried = _options_of(case.stack.framework, choices.options, predictors)
        for size, threads, options in product(sizes, counts, tried):
            given = {**dict(case.stack.model_options), **options}
            stack = replace(case.stack, threads=threads, model_options=tuple(given.items()))
            where = {"stack": stack, "batch_size": size, "scenario": scenario}
            found = Candidate(replace(case, kind="performance", **where), options)
            if found.label not in seen:
                seen.add(found.label)
                yield found


def _scenario_of(loaded: LoadedManifest, gpus: bool) -> str:
    """Return the scenario that calls are timed in; raises MlmsError for what isn't advised on."""
    evaluate = loaded.manifest.evaluate
    if loaded.origin is not None:
        problem = "a manifest of MLModelScope has no section to paste an answer into"
        raise MlmsError(f"{loaded.place()}: {problem}; run 'mlms import' and name what it makes")
    if evaluate.shapes:
        place = loaded.place("evaluate", "shapes")
        raise MlmsError(f"{place}: advice is for one mix of inputs; leave 'shapes' out")
    for device in evaluate.devices:
        if device != "cpu" and not gpus:
            place = loaded.place("evaluate", "devices")
            raise MlmsError(f"{place}: advice is for the CPU only; leave {device} out of 'devices'")
    for label, entry in evaluate.scenario_labels.items():
        if entry.load is None:
            return label
    problem = "advice times calls one after the other, and all scenarios here are loads"
    place = loaded.place("evaluate", "scenarios")
    raise MlmsError(f"{place}: {problem}; add single_stream or offline")


def _check_stack(stack: Stack, choices: Choices) -> None:
    """Raise MlmsError where a stack has a setting of its own, which a pasted one doesn't change."""
    own = [f"option {name}" for name, _ in stack.model_options if name in choices.options]
    if choices.threads and stack.threads:
        own.append("threads")
    if own:
        place = f"{stack.place}: " if stack.place else ""
        problem = f"stack {stack.name} sets its own {' and '.join(own)}, before any manifest"
        raise MlmsError(f"{place}{problem}; remove it there, or don't vary it")


def _options_of(
    framework: str, options: Mapping[str, Sequence[Any]], predictors: Mapping[str, Path]
) -> list[dict[str, Any]]:
    """Return all combinations of the options that a framework takes."""
    pairs = []
    for name, values in options.items():
        taken = []
        for value in values:
            if not [*option_problems(framework, {name: value}, predictors)]:
                taken.append((name, value))
        if taken:
            pairs.append(taken)
    return [dict(chosen) for chosen in product(*pairs)]


def _check_options(
    found: Sequence[Candidate], choices: Choices, predictors: Mapping[str, Path]
) -> None:
    """Raise MlmsError for an option's value that no framework here takes."""
    for name, values in choices.options.items():
        for value in values:
            if not any(each.options.get(name) == value for each in found):
                framework = found[0].case.stack.framework
                problems = option_problems(framework, {name: value}, predictors)
                raise MlmsError(f"--option {name}={value}: {next(iter(problems))[1]}")


def _check_alike(found: Sequence[Candidate]) -> None:
    """Raise MlmsError where candidates do different work, which no figure of them compares."""
    first = found[0].case
    called: dict[str, Case] = {}
    for each in found:
        case = each.case
        other = called.setdefault(each.label, case)
        if other is not case:
            places = f"{other.loaded.place('name')} and {case.loaded.place('name')}"
            raise MlmsError(f"{places}: two candidates are called {each.label}; rename one model")
        if case.loaded.manifest.task != first.loaded.manifest.task:
            places = f"{first.loaded.place('task')} and {case.loaded.place('task')}"
            raise MlmsError(f"{places}: models of different tasks aren't compared; name one task's")
        if case.scenario != first.scenario:
            places = f"{first.scenario_place} and {case.scenario_place}"
            problem = "calls of different scenarios aren't compared"
            raise MlmsError(f"{places}: {problem}; have the same one first in each manifest")


def check_limits(found: Sequence[Candidate], objective: str, limits: Sequence[Limit]) -> None:
    """Raise MlmsError for a quantity that nothing here measures."""
    for name in (objective, *(limit.quantity for limit in limits)):
        quantity = QUANTITIES[name]
        for each in found:
            loaded = each.case.loaded
            if quantity.kind == "performance":
                is_measured = measures("performance", name, None, each.case.device)
                problem, advice = "the CPU has no such quantity", "choose another"
            elif loaded.manifest.dataset is None:
                is_measured = False
                problem, advice = "there is no dataset to measure it with", "add one"
            else:
                known = facts_of(loaded.manifest.task).quantities
                is_measured = name in known
                problem = f"task {loaded.manifest.task} has no such quantity"
                advice = f"it has {', '.join(known)}"
            if not is_measured:
                raise MlmsError(f"{loaded.place('task')}: {name}: {problem}; {advice}")
