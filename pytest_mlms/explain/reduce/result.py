"""The result of a reduction, and the reduction in words: a line for each model that was run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_mlms.core.text import shortened
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


_WIDTH = 100
_MOST_KINDS = 6


def step_line(step: Step) -> str:
    """Return the line of a model that was run."""
    answer = "shows it" if step.shown else "doesn't"
    nodes = _counted(step.nodes, "node")
    line = f"  {nodes:<11} {answer:<9} {step.seconds:6.2f} s  {step.reason}"
    return shortened(line, _WIDTH)


def departure_text(layer: DepartingLayer) -> str:
    """Return the first departing layer: its operator, and how far it departs."""
    found = f"first departing layer: {layer.name} ({layer.type})"
    if math.isinf(layer.multiple):
        return f"{found}, of another shape, or with NaN on one side; all that it reads agrees"
    return (
        f"{found}, by {layer.difference:.3g}, which is {layer.multiple:.3g} times what is allowed; "
        f"what it reads agrees within {layer.before:.2g} of that"
    )


def reduction_text(reduction: Reduction) -> str:
    """Return how much smaller the model is, in one line."""
    assert reduction.after is not None, "there is a smaller one"
    kinds = _kinds_text(reduction.kinds)
    nodes = f"{reduction.after.nodes} of {reduction.before.nodes} nodes"
    return f"{nodes} ({kinds}), {_rows_text(reduction)}"


def _rows_text(reduction: Reduction) -> str:
    assert reduction.after is not None, "there is a smaller one"
    return f"batch {reduction.after.rows} of {reduction.before.rows}"


def _kinds_text(kinds: Sequence[str]) -> str:
    """Return operators in order; of many, how often the commonest occur."""
    if len(kinds) <= _MOST_KINDS:
        return ", ".join(kinds)
    commonest = Counter(kinds).most_common(_MOST_KINDS)
    counted = [f"{count} {kind}" for kind, count in commonest]
    return ", ".join([*counted, "…"])


def result_lines(reduction: Reduction) -> Iterator[str]:
    """Yield what was found, and what is not sure of it."""
    if reduction.layer is not None:
        yield departure_text(reduction.layer)
    if reduction.bundle is None:
        yield f"no smaller model: {reduction.reason}"
        return
    if reduction.reason:
        yield reduction.reason
    yield _size_text(reduction)
    yield f"  {reduction.bundle.expected.summary}"
    yield from _limits(reduction)


def _size_text(reduction: Reduction) -> str:
    """Return the size of the smallest model, or that it is the whole one."""
    assert reduction.after is not None, "there is a smallest model"
    nodes = reduction.after.nodes
    is_smaller = nodes < reduction.before.nodes
    if is_smaller or nodes == 1 or not reduction.complete:
        return f"smallest model: {reduction_text(reduction)}"
    rows = _rows_text(reduction)
    return f"no part of the model is known to show it, so all {nodes} nodes stay: {rows}"


def _limits(reduction: Reduction) -> Iterator[str]:
    """Yield why no smaller model is known, in a line; none for a single node."""
    assert reduction.after is not None, "there is a smallest model"
    steps = _counted(len(reduction.steps), "model")
    if not reduction.complete:
        yield f"  the search was stopped after {steps}: a smaller one may show it, too"
    elif not reduction.minimal:
        yield f"  {steps} run; without some of its nodes, it is not decided"
    elif reduction.after.nodes > 1:
        yield f"  {steps} run; without any one of its nodes, it doesn't show it"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
