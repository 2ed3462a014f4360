"""Which layers moved between two stacks: pure functions of the profiles that agents send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

__all__ = ["LayerChange", "changed_layers"]

Profile = Sequence[Any]
"""[start, end, [[name, type, start, end, bytes, shape], …]] of one call, in seconds."""


class LayerChange(NamedTuple):
    """A layer's seconds a call on both sides (None.

    It isn't there), the change, and its share of the whole change.
    """

    name: str
    type: str
    a: float | None
    b: float | None
    change: float
    share: float | None


def changed_layers(a: Sequence[Profile], b: Sequence[Profile], most: int = 8) -> list[LayerChange]:
    """Return the layers that moved most, what all others did together, and the total.

    A layer is known by its name; its time is the median over the calls. What one side only has, as
    where one version fuses what another doesn't, moves by all of its time. ``share`` is of the
    total's change, None where there is none.
    """
    (times_a, types_a), (times_b, types_b) = _medians(a), _medians(b)
    total_a, total_b = sum(times_a.values()), sum(times_b.values())
    whole = total_b - total_a
    types = {**types_a, **types_b}
    names = sorted(types, key=lambda name: -abs(times_b.get(name, 0.0) - times_a.get(name, 0.0)))

    def change(label: str, kind: str, before: float | None, after: float | None) -> LayerChange:
        moved = (after or 0.0) - (before or 0.0)
        return LayerChange(label, kind, before, after, moved, moved / whole if whole else None)

    found = [
        change(name, types[name], times_a.get(name), times_b.get(name)) for name in names[:most]
    ]
    rest = names[most:]
    if rest:
        sums = [sum(times.get(name, 0.0) for name in rest) for times in (times_a, times_b)]
        found.append(change(f"{len(rest)} others", "", *sums))
    return [*found, change("all layers", "", total_a, total_b)] if found else []


def _medians(profiles: Sequence[Profile]) -> tuple[Mapping[str, float], Mapping[str, str]]:
    """Return each layer's median seconds a call, and its type.

    A layer may run several times in a call.
    """
    taken: dict[str, list[float]] = defaultdict(list)
    types: dict[str, str] = {}
    for _, _, layers in profiles:
        call: dict[str, float] = defaultdict(float)
        for name, kind, start, end, *_ in layers:
            call[name] += end - start
            types[name] = kind
        for name, seconds in call.items():
            taken[name].append(seconds)
    return {name: median(values) for name, values in taken.items()}, types
