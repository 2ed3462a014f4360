"""How far tensors of both sides are apart, and the first layer that departs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.explain.reduce.network import Network
from pytest_mlms.measure.evaluate.closeness import Rule, differences

_ROUNDING = 64 * float(np.finfo(np.float32).eps)
"""Of the largest value that a node reads: what rounding may leave where large values cancel out."""


class Deviation(NamedTuple):
    """The largest difference of two tensors, and that as a multiple of what is allowed.

    Both are infinite for tensors of different shapes, and where one side alone has NaN. ``scale``
    is the largest finite value of the old side.
    """

    difference: float
    multiple: float
    scale: float = 0.0

    @property
    def departs(self) -> bool:
        """True if it is more than what is allowed."""
        return self.multiple > 1


def deviation(old: Array, new: Array, rule: Rule) -> Deviation:
    """Return how far a tensor of the new side is from the old side's.

    Unlike outputs of a model, tensors inside of it may have NaN and infinities, which agree with
    themselves.
    """
    if old.shape != new.shape:
        return Deviation(np.inf, np.inf)
    if not old.size:
        return Deviation(0.0, 0.0)
    multiples, absolute = _elements(old, new, rule)
    return Deviation(float(absolute.max()), float(multiples.max()), largest_value(old))


def largest_value(array: Array) -> float:
    """Return the largest finite absolute value of a tensor, 0 without one."""
    if array.dtype.kind not in "fiu":
        return 0.0
    values = np.abs(array.astype(np.float64))
    return float(values.max(initial=0.0, where=np.isfinite(values)))


def _elements(old: Array, new: Array, rule: Rule) -> tuple[Array, Array]:
    """Return the multiple of what is allowed, and the difference, of each element."""
    both = _is_nan(old) & _is_nan(new)
    if both.any():  # texts have none, nor a 0
        old, new = np.where(both, 0, old), np.where(both, 0, new)
    found = differences(new, old, rule.tolerance_of(old))
    return found.deviation, found.absolute


def _is_nan(array: Array) -> Array:
    return np.isnan(array) if array.dtype.kind in "fc" else np.zeros(array.shape, bool)


def departing_rows(old: Array, new: Array, rule: Rule) -> Array:
    """Return the numbers of the rows that depart, the worst first; none for other shapes."""
    if old.shape != new.shape or not old.ndim or not old.size:
        return np.array([], np.int64)
    multiples, _ = _elements(old, new, rule)
    rows = multiples.reshape(len(old), -1).max(axis=1)
    order = np.argsort(-rows, kind="stable")
    departing: Array = order[rows[order] > 1]
    return departing


class DepartingLayer(NamedTuple):
    """The first node whose outputs depart while all that it reads agrees.

    ``difference`` is the largest of its outputs, and ``multiple`` that as a multiple of what is
    allowed; ``before`` is the largest multiple of what it reads.
    """

    number: int
    name: str
    type: str
    difference: float
    multiple: float
    before: float


def first_departure(network: Network, found: Mapping[str, Deviation]) -> DepartingLayer | None:
    """Return the first departing node in the order of the nodes; None where no tensor departs.

    Tensors that are no arrays are not in ``found``, and count as agreeing. So does a difference
    that rounding explains: large values which cancel out leave small ones that are nothing else.
    """
    for number, node in enumerate(network.nodes):
        worst = _worst(node.writes, found)
        before = _worst(node.reads, found)
        scale = max((found[name].scale for name in node.reads if name in found), default=0.0)
        is_rounding = worst.difference <= _ROUNDING * scale
        if worst.departs and not before.departs and not is_rounding:
            return DepartingLayer(
                number=number,
                name=node.name,
                type=node.type,
                difference=worst.difference,
                multiple=worst.multiple,
                before=before.multiple,
            )
    return None


def _worst(names: Iterable[str], found: Mapping[str, Deviation]) -> Deviation:
    known = [found[name] for name in names if name in found]
    return max(known, key=lambda one: one.multiple, default=Deviation(0.0, 0.0))
