"""A manifest and the stacks that there are -> the cases, their ids and their marks."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pytest_mlms.manifest.load import LoadedManifest
from pytest_mlms.manifest.schema import Model
from pytest_mlms.manifest.thresholds import AgreementThreshold
from pytest_mlms.records import Kind, Limit, Place, Stack

__all__ = ["Case", "cases_of", "upgrades_of"]


@dataclass(frozen=True, eq=False)
class Case:
    """One point of a manifest: a model on a stack and a device, with a batch size and, for
    performance, a scenario.

    An upgrade has the stack that it is ``against`` too, the baseline, and the model there.
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

    @property
    def id(self) -> str:
        """The part of the node id in brackets."""
        if self.against:
            baseline = "aa" if self.against == self.stack else f"vs-{self.against.label}"
            return f"{self.stack.label}-{baseline}-{self.device}-b{self.batch_size}"
        where = f"{self.stack.label}-{self.device}"
        if self.kind == "trace":
            return f"{where}-b{self.batch_size}"
        return (
            f"{where}-b{self.batch_size}-{self.scenario}" if self.kind == "performance" else where
        )

    @property
    def threads(self) -> int | None:
        """The CPU threads to use: the stack's own word, else the manifest's.

        None leaves it to the framework.
        """
        return self.stack.threads or self.loaded.manifest.evaluate.threads

    def place(self, *key: str) -> Place:
        """Return the manifest's line of this case's model, or of a key of it."""
        return self.loaded.place("models", self.loaded.manifest.models.index(self.model), *key)

    @property
    def baseline(self) -> Case:
        """The case of an upgrade with the stack and the model that it is against."""
        assert self.against
        return replace(self, stack=self.against, model=self.model_against or self.model)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that judge this case."""
        own = {
            "batch_sizes": self.batch_size,
            "scenarios": self.scenario,
            "devices": self.device,
            "frameworks": self.stack.framework,
        }
        return tuple(
            limit
            for limit in self.loaded.limits(self.kind)
            if all(
                not getattr(limit, name) or value in getattr(limit, name)
                for name, value in own.items()
            )
        )

    @property
    def agreement(self) -> AgreementThreshold | None:
        """What says how close the case must be to the reference, if the manifest does."""
        entries = self.loaded.manifest.thresholds.agreement
        return next(
            (entry for entry in entries if entry.judges(self.device, self.stack.framework)), None
        )

    @property
    def reference(self) -> Case | None:
        """The case that this one must agree with, on the manifest's first device.

        None where no stack runs it.
        """
        if self.agreement is None or self.reference_stack is None:
            return None
        manifest = self.loaded.manifest
        model = next(model for model in manifest.models if model.name == self.agreement.reference)
        return replace(
            self, model=model, stack=self.reference_stack, device=manifest.evaluate.devices[0]
        )

    @property
    def marks(self) -> Iterator[tuple[str, str]]:
        """The manifest's marks for this case, as (xfail or skip, reason).

        By framework, or by a pattern of the id.
        """
        for mark, reasons in self.loaded.manifest.marks.items():
            for pattern, reason in reasons.items():
                if pattern in (self.stack.framework, self.stack.name) or fnmatch.fnmatchcase(
                    self.id, pattern
                ):
                    yield mark, reason


def cases_of(
    loaded: LoadedManifest,
    kind: Kind,
    stacks: Callable[[str], Iterable[Stack]],
    reference: Callable[[str], Stack | None],
) -> list[Case]:
    """Return the cases of one kind; accuracy and agreement have one a model, stack and device, at
    the largest size.

    ``stacks`` gives the stacks that run a framework, ``reference`` the one to compare with.
    """
    evaluate = loaded.manifest.evaluate
    if kind == "accuracy" and not loaded.manifest.has_accuracy:
        return []
    points: list[tuple[int, str | None]] = [(max(evaluate.batch_sizes), None)]
    if kind == "performance":
        points = [
            (size, scenario) for scenario in evaluate.scenarios for size in evaluate.batch_sizes
        ]
    if kind in ("upgrade", "trace"):
        points = [(size, None) for size in evaluate.batch_sizes]
    found = [
        Case(kind, loaded, model, stack, device, size, scenario)
        for model in loaded.manifest.models
        for stack in stacks(model.name)
        for device in evaluate.devices
        for size, scenario in points
    ]
    return found if kind != "agreement" else list(_with_reference(found, reference))


def _with_reference(
    cases: Iterable[Case], reference: Callable[[str], Stack | None]
) -> Iterator[Case]:
    """Yield the cases that an agreement judges, with the stack that they are compared with.

    Not that one itself.
    """
    for case in cases:
        if case.agreement:
            other = replace(case, reference_stack=reference(case.agreement.reference))
            if other.reference is None or (other.stack, other.device) != (
                other.reference.stack,
                other.reference.device,
            ):
                yield other


def upgrades_of(
    loaded: LoadedManifest,
    stacks: Callable[[str], Iterable[Stack]],
    against: Callable[[str], Iterable[Stack]],
) -> list[Case]:
    """Return an upgrade for each case and each stack that it is against.

    Those are of the same framework; where there are none, and the manifest has the model in the
    other framework too, they are of another.
    """
    models = loaded.manifest.models
    found = []
    for case in cases_of(loaded, "upgrade", stacks, lambda framework: None):
        same = [(stack, case.model) for stack in against(case.model.name)]
        other = [
            (stack, model)
            for model in models
            if model.name != case.model.name
            for stack in against(model.name)
        ]
        found += [
            replace(case, against=stack, model_against=model) for stack, model in same or other
        ]
    return found
