"""A manifest and the stacks that there are -> the cases, their ids and their marks."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pytest_mlms.manifest.load import Loaded
from pytest_mlms.manifest.schema import Model
from pytest_mlms.records import Kind, Limit, Place, Stack

__all__ = ["Case", "cases_of"]


@dataclass(frozen=True, eq=False)
class Case:
    """One point of a manifest: a model on a stack and a device, with a batch size and, for performance, a scenario."""

    kind: Kind
    loaded: Loaded
    model: Model
    stack: Stack
    device: str
    batch_size: int
    scenario: str | None

    @property
    def id(self) -> str:
        """The part of the node id in brackets."""
        where = f"{self.stack.framework}-{self.device}"
        return f"{where}-b{self.batch_size}-{self.scenario}" if self.kind == "performance" else where

    def place(self, *key: str) -> Place:
        """Return the manifest's line of this case's model, or of a key of it."""
        return self.loaded.place("models", self.loaded.manifest.models.index(self.model), *key)

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
            if all(not getattr(limit, name) or value in getattr(limit, name) for name, value in own.items())
        )

    @property
    def marks(self) -> Iterator[tuple[str, str]]:
        """The manifest's marks for this case, as (xfail or skip, reason): by framework, or by a pattern of the id."""
        for mark, reasons in self.loaded.manifest.marks.items():
            for pattern, reason in reasons.items():
                if pattern == self.stack.framework or fnmatch.fnmatchcase(self.id, pattern):
                    yield mark, reason


def cases_of(loaded: Loaded, kind: Kind, stacks: Callable[[str], Iterable[Stack]]) -> list[Case]:
    """Return the cases of one kind; accuracy has one a model, stack and device, at the largest batch size."""
    evaluate = loaded.manifest.evaluate
    if kind == "accuracy" and not loaded.manifest.has_accuracy:
        return []
    points: list[tuple[int, str | None]] = [(max(evaluate.batch_sizes), None)]
    if kind == "performance":
        points = [(size, scenario) for scenario in evaluate.scenarios for size in evaluate.batch_sizes]
    return [
        Case(kind, loaded, model, stack, device, size, scenario)
        for model in loaded.manifest.models
        for stack in stacks(model.name)
        for device in evaluate.devices
        for size, scenario in points
    ]
