"""Cases of a manifest: each is evaluated by one pytest item."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Artifact, Kind, Limit, Place, Stack
from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.scenarios import (
    Load,
    OpenLoad,
    Point,
    ScenarioEntry,
    is_judged,
    points_of,
)
from pytest_mlms.manifest.schema import Input, Model
from pytest_mlms.manifest.thresholds import AgreementThreshold
from pytest_mlms.manifest.types import Scalar

if TYPE_CHECKING:
    import pytest

__all__ = ["Case", "Mark", "Point", "case_of", "cases_of", "points_of", "upgrades_of"]

HERE_NAME = "here"
"""The name of the interpreter that runs pytest, also where only one variant is asked for."""

StacksOf = Callable[[str], Iterable[Stack]]
"""Returns the stacks that run a framework."""

ReferenceOf = Callable[[str], Stack | None]
"""Returns the stack that runs a reference framework, if there is one."""


class Mark(NamedTuple):
    """A mark of a manifest: xfail or skip, with its reason."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class Case:
    """A model on a stack and a device, with a batch size and, where one is timed, a scenario.

    ``scenario`` is what ids call it: its name, with what tells it from others of that name.
    An agreement has the stack of its reference. An upgrade has the stack that it is ``against``,
    the baseline, and the model there. ``unlocked`` is why its baseline can't be that of the lock
    file, which is then raised where it runs. With ``own_threads`` frameworks choose their number.
    Inputs of a case with a ``shape`` of the manifest are random ones of its sizes.
    """

    kind: Kind
    loaded: LoadedManifest
    model: Model
    stack: Stack
    device: str
    batch_size: int
    scenario: str | None
    reference_stack: Stack | None = None
    against: Stack | None = None
    model_against: Model | None = None
    unlocked: MlmsError | None = None
    own_threads: bool = False
    shape: str | None = None

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of the axes that inputs name: of its shape, else of the manifest's first."""
        shapes = self.loaded.manifest.evaluate.named_shapes
        return shapes[self.shape or next(iter(shapes))] if shapes else {}

    @property
    def inputs(self) -> list[Input]:
        """The inputs of its model, with the sizes of its shape."""
        return [spec.sized(self.sizes) for spec in self.loaded.manifest.inputs]

    @property
    def stacks(self) -> list[Stack]:
        """The stacks that it needs."""
        return list(filter(None, (self.stack, self.against, self.reference_stack)))

    @property
    def files(self) -> Iterator[Artifact]:
        """The files that it needs: of its models, its dataset and its steps."""
        for model in filter(None, (self.model, self.model_against)):
            yield from self.loaded.model_files(model).values()
        if self.has_dataset and self.loaded.dataset_file:
            yield self.loaded.dataset_file
        yield from self.loaded.step_files.values()

    @property
    def has_dataset(self) -> bool:
        """True if it is evaluated with a dataset: inputs of a named shape are drawn."""
        return self.loaded.manifest.dataset is not None and self.shape is None

    @property
    def caches(self) -> Literal["cold", "warm"] | None:
        """The state in which processes that are timed find caches; None: as they are kept here."""
        timed = self.kind in ("performance", "upgrade")
        return self.loaded.manifest.evaluate.caches if timed else None

    @property
    def load(self) -> Load | None:
        """The load of its scenario, where queries are recorded one by one."""
        entry = self._scenario_entry
        return entry.load if entry else None

    @property
    def scenario_place(self) -> Place:
        """The manifest's line of its scenario, or of its latency where it has one."""
        evaluate = self.loaded.manifest.evaluate
        entry = self._scenario_entry
        if entry is None:
            return self.place()
        number = evaluate.scenarios.index(entry)
        return self.loaded.place("evaluate", "scenarios", number, entry.name, "latency")

    @property
    def _scenario_entry(self) -> ScenarioEntry | None:
        if self.scenario is None:
            return None
        return self.loaded.manifest.evaluate.scenario_labels[self.scenario]

    @property
    def id(self) -> str:
        """The part of the node id in brackets."""
        return f"{self._id_of_point}-{self.shape}" if self.shape else self._id_of_point

    @property
    def _id_of_point(self) -> str:
        side = _side(self.stack, self.model)
        if self.against:
            sides = f"{side}-{self._baseline_id}"
            point = f"{sides}-{self.device}-b{self.batch_size}"
            return f"{point}-{self.scenario}" if self.scenario else point
        where = f"{side}-{self.device}"
        if self.kind in ("trace", "soak"):
            return f"{where}-b{self.batch_size}"
        if self.kind == "performance":
            return f"{where}-b{self.batch_size}-{self.scenario}"
        return where

    @property
    def label(self) -> str:
        """The name of the model and the id: what a message calls the case."""
        return f"{self.loaded.manifest.name} {self.id}"

    @property
    def _baseline_id(self) -> str:
        baseline = self.model_against or self.model
        if self.against is None or (self.against == self.stack and baseline == self.model):
            return "aa"
        return f"vs-{_side(self.against, baseline)}"

    @property
    def threads(self) -> int | None:
        """The CPU threads to use: the stack's, else the manifest's, else the framework's choice."""
        if self.own_threads:
            return None
        return self.stack.threads or self.loaded.manifest.evaluate.threads

    @property
    def options(self) -> dict[str, Scalar]:
        """The options of the predictor: the model's, and instead of them those of the stack."""
        return {**self.model.options, **dict(self.stack.model_options)}

    @property
    def crosses_variants(self) -> bool:
        """True for an upgrade between two variants, whose outputs differ by design."""
        baseline = self.model_against or self.model
        return baseline.name == self.model.name and baseline.variant != self.model.variant

    @property
    def setting(self) -> Hashable:
        """Everything that an agent of this case is started with, and its model loaded with.

        Items of equal settings may share an agent.
        """
        return (self.loaded.path, repr(self.model), self.stack, self.device, self.threads)

    def place(self, *key: str) -> Place:
        """Return the manifest's line of this case's model, or of a key of it."""
        index = self.loaded.manifest.models.index(self.model)
        return self.loaded.place("models", index, *key)

    @property
    def baseline(self) -> Case:
        """The same case with the stack and the model that an upgrade is against."""
        if self.against is None:
            raise ValueError(f"{self.id} is not an upgrade")
        return replace(self, stack=self.against, model=self.model_against or self.model)

    @property
    def with_own_threads(self) -> Case:
        """The same case with as many threads as the framework chooses by itself."""
        return replace(self, stack=replace(self.stack, threads=None), own_threads=True)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that judge this case."""
        return tuple(filter(self._is_judged_by, self.loaded.limits(self.kind)))

    def _is_judged_by(self, limit: Limit) -> bool:
        point = Point(self.batch_size, self.scenario, self.shape)
        manifest = self.loaded.manifest
        return is_judged(limit, self.kind, manifest, self.model, self.device, point)

    @property
    def own_limits(self) -> tuple[Limit, ...]:
        """The limits that its scenario has, on a percentile of its queries."""
        found = self.load.limits if isinstance(self.load, OpenLoad) else {}
        place = self.scenario_place
        return tuple(Limit(quantity, value, place) for quantity, value in found.items())

    @property
    def agreement(self) -> AgreementThreshold | None:
        """The agreement that judges this case, if the manifest has one."""
        for agreement in self.loaded.manifest.thresholds.agreement:
            if agreement.judges(self.device, self.model.names):
                return agreement
        return None

    @property
    def upgrade_agreement(self) -> AgreementThreshold | None:
        """The agreement that an upgrade's outputs are judged by, if the manifest has one.

        One between variants is for upgrades between these only: it is as wide as they differ.
        """
        found = self.agreement
        if found is None or self.crosses_variants:
            return found
        reference = self.loaded.manifest.model_called(found.reference)
        is_between = reference is not None and reference.name == self.model.name
        return None if is_between and reference != self.model else found

    @property
    def reference(self) -> Case | None:
        """The case that this one must agree with, on the manifest's first device.

        None where no stack runs it.
        """
        if self.agreement is None or self.reference_stack is None:
            return None
        manifest = self.loaded.manifest
        return replace(
            self,
            model=manifest.model_called(self.agreement.reference) or self.model,
            stack=self.reference_stack,
            device=manifest.evaluate.devices[0],
        )

    @property
    def marks(self) -> Iterator[Mark]:
        """The manifest's marks for this case."""
        for mark, reasons in self.loaded.manifest.marks.items():
            for pattern, reason in reasons.items():
                if self.is_called(pattern):
                    yield Mark(mark, reason)

    def is_called(self, pattern: str) -> bool:
        """Return whether this is its framework, its variant, its stack, or a pattern of its id."""
        names = {*self.model.names, self.stack.name}
        return pattern in names or fnmatch.fnmatchcase(self.id, pattern)


def _side(stack: Stack, model: Model) -> str:
    """Return what ids call a stack and a model on it: with its variant where that isn't clear."""
    is_of_one = stack.variant and stack.name != HERE_NAME
    return f"{stack.label}-{model.variant}" if model.variant and not is_of_one else stack.label


def case_of(item: pytest.Item) -> Case | None:
    """Return the case that an item evaluates, None for an item of another plugin."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return None
    case = callspec.params.get("mlms_case")
    return case if isinstance(case, Case) else None


def cases_of(
    loaded: LoadedManifest, kind: Kind, stacks_of: StacksOf, reference_of: ReferenceOf
) -> list[Case]:
    """Return the cases of one kind.

    Accuracy and agreement have one case for each model, stack and device, with the largest batch.
    Those of accuracy are there without a classification, too, for tests that users write.
    """
    manifest = loaded.manifest
    points = points_of(kind, manifest)
    cases = []
    for model in manifest.models:
        for stack in _running(model, stacks_of):
            for device in manifest.evaluate.devices:
                for size, scenario, shape in points:
                    where = (model, stack, device, size, scenario)
                    cases.append(Case(kind, loaded, *where, shape=shape))
    if kind == "agreement":
        return list(_with_reference(cases, reference_of))
    return cases


def _running(model: Model, stacks_of: StacksOf) -> list[Stack]:
    """Return the stacks that run a model: a stack with a variant runs those of this one only."""
    stacks = stacks_of(model.name)
    return [stack for stack in stacks if stack.variant in ("", model.variant)]


def _with_reference(cases: Iterable[Case], reference_of: ReferenceOf) -> Iterator[Case]:
    """Yield the cases that an agreement judges, with the stack of their reference.

    The reference itself is left out.
    """
    for case in cases:
        if case.agreement:
            reference = case.loaded.manifest.model_called(case.agreement.reference)
            stack = reference_of(reference.name) if reference else None
            compared = replace(case, reference_stack=stack)
            if not _is_reference(compared):
                yield compared


def _is_reference(case: Case) -> bool:
    """Return whether a case would be compared with itself."""
    reference = case.reference
    if reference is None:
        return False
    same_model = case.model == reference.model
    return same_model and case.stack == reference.stack and case.device == reference.device


def upgrades_of(
    loaded: LoadedManifest, candidates_of: StacksOf, baselines_of: StacksOf
) -> list[Case]:
    """Return an upgrade for each candidate and each of its baselines.

    Baselines are of the same framework. Where there are none, and the manifest has the model in
    another framework too, they are of that one.
    """
    upgrades = []
    for candidate in cases_of(loaded, "upgrade", candidates_of, lambda framework: None):
        same = list(_same_framework(loaded, candidate, baselines_of))
        baselines = same or _other_frameworks(loaded, candidate.model, baselines_of)
        for model, stack in baselines:
            upgrades.append(replace(candidate, against=stack, model_against=model))
    return upgrades


def _same_framework(
    loaded: LoadedManifest, candidate: Case, baselines_of: StacksOf
) -> Iterator[tuple[Model, Stack]]:
    """Yield the baselines of the same framework, each with its model.

    It is the candidate's own, or that of the variant which the baseline's stack is for.
    """
    for stack in baselines_of(candidate.model.name):
        for model in loaded.manifest.models:
            wanted = stack.variant or candidate.model.variant
            if model.name == candidate.model.name and model.variant == wanted:
                yield model, stack


def _other_frameworks(
    loaded: LoadedManifest, candidate: Model, baselines_of: StacksOf
) -> list[tuple[Model, Stack]]:
    baselines = []
    for model in loaded.manifest.models:
        if model.name != candidate.name:
            baselines += [(model, stack) for stack in _running(model, baselines_of)]
    return baselines
