"""A bundle: a model, its inputs, the exact software of both sides, and what is expected of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_mlms.core.arrays import Array
from pytest_mlms.explain.repro.replay.record import BundleSide, Expectation

__all__ = ["Array", "Bundle", "BundleSide", "Expectation"]


@dataclass(frozen=True)
class Bundle:
    """Everything that a replay of a failure needs.

    Attributes:
        title: One line for a person.
        predictor: The file of the predictor that runs the model; its name is the framework's.
        files: The model's files by role, as a load request has them; folders are taken whole. Files
            that ONNX keeps weights in are found beside the graph.
        device: Such as cpu or cuda:0.
        threads: The CPU threads; None for the framework's own choice.
        options: The manifest's options for the framework.
        inputs: One batch by the model's own names of its inputs.
        old: The side that was fine; None where a single side fails.
        new: The side that fails.
        expected: What was seen.
        reference: Of a single side whose outputs are wrong, the outputs that it is held against, by
            the model's own names.
        wheels: Packages that no index has, which come along.
        notes: Texts for whoever runs it, such as what was left out.
    """

    title: str
    predictor: Path
    files: Mapping[str, Path]
    device: str
    threads: int | None
    options: Mapping[str, Any]
    inputs: Mapping[str, Array]
    old: BundleSide | None
    new: BundleSide
    expected: Expectation
    reference: Mapping[str, Array] = field(default_factory=dict)
    wheels: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def framework(self) -> str:
        """The framework that runs the model."""
        return self.predictor.stem

    @property
    def sides(self) -> tuple[BundleSide, ...]:
        """The sides, the old one first."""
        return (self.new,) if self.old is None else (self.old, self.new)
