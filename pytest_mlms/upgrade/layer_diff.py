"""Differences between the layers of two stacks: pure functions of the profiles of agents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from pytest_mlms.serialization import plain_as_list

__all__ = ["LayerChange", "changed_layers"]

Profile = Sequence[Any]
"""[start, end, [[name, type, start, end, bytes, shape], …]] of one call, in seconds."""

Seconds = dict[str, float]
"""Seconds by the name of a layer."""


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
    types = {**_types(a), **_types(b)}
    if not types:
        return []
    comparison = _Comparison(_median_seconds(a), _median_seconds(b), types)
    names = comparison.names_by_change()
    changes = [comparison.change_of(name) for name in names[:most]]
    others = names[most:]
    if others:
        label = f"{len(others)} others"
        changes.append(comparison.sum_of(label, others))
    changes.append(comparison.sum_of("all layers", names))
    return changes


def _types(profiles: Iterable[Profile]) -> dict[str, str]:
    """Return the type of each layer by name."""
    types = {}
    for _, _, layers in profiles:
        for name, kind, *_ in layers:
            types[name] = kind
    return types


def _median_seconds(profiles: Iterable[Profile]) -> Seconds:
    """Return the median seconds a call of each layer."""
    taken = defaultdict(list)
    for _, _, layers in profiles:
        for name, seconds in _seconds_in_call(layers).items():
            taken[name].append(seconds)
    return {name: median(values) for name, values in taken.items()}


def _seconds_in_call(layers: Iterable[Any]) -> Seconds:
    """Return the seconds of each layer in one call, in which it may run several times."""
    total: Seconds = defaultdict(float)
    for name, _, start, end, *_ in layers:
        total[name] += end - start
    return total


class _Comparison:
    """The layers of both sides: seconds and types by name."""

    def __init__(self, a: Seconds, b: Seconds, types: dict[str, str]) -> None:
        self._a = a
        self._b = b
        self._types = types
        self._whole = _total(b, types) - _total(a, types)

    def names_by_change(self) -> list[str]:
        """Return the names of all layers, the largest change first."""
        return sorted(self._types, key=self._size, reverse=True)

    def change_of(self, name: str) -> LayerChange:
        """Return the change of one layer."""
        change = self._change([name])
        kind = self._types[name]
        share = self._share(change)
        return LayerChange(name, kind, self._a.get(name), self._b.get(name), change, share)

    def sum_of(self, label: str, names: Collection[str]) -> LayerChange:
        """Return the change of several layers together."""
        a = _total(self._a, names)
        b = _total(self._b, names)
        change = b - a
        return LayerChange(label, "", a, b, change, self._share(change))

    def _change(self, names: Collection[str]) -> float:
        return _total(self._b, names) - _total(self._a, names)

    def _size(self, name: str) -> float:
        return abs(self._change([name]))

    def _share(self, change: float) -> float | None:
        if not self._whole:
            return None
        return change / self._whole


def _total(seconds: Seconds, names: Iterable[str]) -> float:
    """Return the seconds of some layers; a layer that is not there takes none."""
    return sum(seconds.get(name, 0.0) for name in names)
