"""Differences between the layers of two stacks: pure functions of the profiles of agents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from pytest_mlms.serialization import plain_as_list

__all__ = ["LayerChange", "changed_layers"]

Profile = Sequence[Any]
"""[start, end, [[name, type, start, end, bytes, shape], …]] of one call, in seconds."""


@plain_as_list
class LayerChange(NamedTuple):
    """A layer's seconds a call on both sides, and its change.

    ``a`` or ``b`` is None where that side has no such layer. ``share`` is of the change of all
    layers together, None where there is none.
    """

    name: str
    type: str
    a: float | None
    b: float | None
    change: float
    share: float | None


def changed_layers(a: Sequence[Profile], b: Sequence[Profile], most: int = 8) -> list[LayerChange]:
    """Return the ``most`` layers that changed most, the sum of all others, and the total.

    A layer is matched by its name; its time is the median over the calls. A layer that only one
    side has, such as one that is fused in the other version, changes by all of its time.
    """
    comparison = _LayerComparison(_SideLayers(a), _SideLayers(b))
    names = comparison.by_change()
    if not names:
        return []
    changes = [comparison.change_of(name) for name in names[:most]]
    others = names[most:]
    if others:
        changes.append(comparison.sum_of(f"{len(others)} others", others))
    changes.append(comparison.sum_of("all layers", names))
    return changes


class _SideLayers:
    """The layers of one side: median seconds a call, and types, by name."""

    def __init__(self, profiles: Iterable[Profile]) -> None:
        taken: dict[str, list[float]] = defaultdict(list)
        self.types: dict[str, str] = {}
        for _, _, layers in profiles:
            for name, seconds in _seconds_by_name(layers).items():
                taken[name].append(seconds)
            for layer in layers:
                self.types[layer[0]] = layer[1]
        self.seconds = {name: median(values) for name, values in taken.items()}

    def total(self, names: Iterable[str]) -> float:
        """Return the seconds a call of some layers; one that is not there has none."""
        return sum(self.seconds.get(name, 0.0) for name in names)


def _seconds_by_name(layers: Iterable[Sequence[Any]]) -> Mapping[str, float]:
    """Return the seconds of each layer in one call, where it may run several times."""
    seconds: dict[str, float] = defaultdict(float)
    for name, _, start, end, *_ in layers:
        seconds[name] += end - start
    return seconds


class _LayerComparison:
    """The layers of both sides, and the change of their total."""

    def __init__(self, a: _SideLayers, b: _SideLayers) -> None:
        self._a = a
        self._b = b
        self._types = {**a.types, **b.types}
        self._whole = b.total(self._types) - a.total(self._types)

    def by_change(self) -> list[str]:
        """Return the names of all layers, the largest change first."""
        return sorted(self._types, key=self._size_of_change)

    def change_of(self, name: str) -> LayerChange:
        """Return the change of one layer."""
        a = self._a.seconds.get(name)
        b = self._b.seconds.get(name)
        change = (b or 0.0) - (a or 0.0)
        return LayerChange(name, self._types[name], a, b, change, self._share(change))

    def sum_of(self, label: str, names: Sequence[str]) -> LayerChange:
        """Return the change of several layers together."""
        a = self._a.total(names)
        b = self._b.total(names)
        return LayerChange(label, "", a, b, b - a, self._share(b - a))

    def _size_of_change(self, name: str) -> float:
        return -abs(self._b.total([name]) - self._a.total([name]))

    def _share(self, change: float) -> float | None:
        if not self._whole:
            return None
        return change / self._whole
