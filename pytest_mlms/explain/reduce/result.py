"""The result of a reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_mlms.explain.reduce.deviation import DepartingLayer
from pytest_mlms.explain.reduce.search import Step
from pytest_mlms.explain.repro.bundle import Bundle


@dataclass(frozen=True)
class Size:
    """The size of a model and of its inputs: nodes without constants, and rows of the batch."""

    nodes: int
    rows: int


@dataclass(frozen=True)
class Reduction:
    """The smallest model that still shows the failure of a bundle.

    Attributes:
        before: The size of the bundle's model.
        bundle: The smaller bundle; None where nothing smaller shows the failure.
        after: The size of its model.
        kinds: The operators of its model, in order.
        layer: Of outputs that differ, the first departing layer; None where none was found.
        steps: The models that were taken out of the whole one and run.
        minimal: Whether it was shown to need each of its nodes.
        complete: Whether the search came to its end, within the budget and without Ctrl-C.
        reason: Why there is no smaller bundle, or what is known of the cause; "" for nothing.
    """

    before: Size
    bundle: Bundle | None = None
    after: Size | None = None
    kinds: tuple[str, ...] = ()
    layer: DepartingLayer | None = None
    steps: Sequence[Step] = ()
    minimal: bool = False
    complete: bool = True
    reason: str = ""
