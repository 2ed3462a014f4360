"""Differences between the layers of two stacks: pure functions of the profiles of agents."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from statistics import median
from typing import Any, NamedTuple

from pytest_mlms.core.records import Comparison, LayerChange

Profile = Sequence[Any]
"""[start, end, [[name, type, start, end, bytes, shape], …]] of one call, in seconds."""

_NUMBER = re.compile(r"\d+")
_MOST_ALIKE = 500_000  # pairs, which a second is enough to look through
_CANCELLED = 0.1
"""A change of all layers together as a share of what they change by, below which shares tell
nothing: they would be a thousand percent, or millions."""
_EXPLAINED = 0.3
"""A change of all layers as a share of that of latency, below which they don't explain it."""
_HOLDING = frozenset({"Loop", "If", "Scan", "SequenceMap"})
"""Types of layers in which others run."""


def changed_layers(a: Sequence[Profile], b: Sequence[Profile], most: int = 8) -> list[LayerChange]:
    """Return the ``most`` layers that changed most, the sum of all others, and the total.

    A layer's time is the median over the calls. A layer that only one side has, such as one that is
    fused in the other version, changes by all of its time.
    """
    rows = _rows(_layers(a), _layers(b))
    if not rows:
        return []
    rows.sort(key=lambda row: abs(row.change), reverse=True)
    total = _sum_of("all layers", rows)
    whole: float | None = total.change
    moved = sum(abs(row.change) for row in rows)
    if abs(total.change) <= _CANCELLED * moved:
        whole = None
    changes = [_shown(row, whole) for row in rows[:most]]
    others = rows[most:]
    if others:
        changes.append(_shown(_sum_of(f"{len(others)} others", others), whole))
    changes.append(_shown(total, whole))
    return changes


def explains(layers: Sequence[LayerChange], comparisons: Iterable[Comparison]) -> bool:
    """Return whether layers explain a change of latency, by its sign and its size.

    The last of ``layers`` is the total. Tracing adds to each layer, so that a smaller part of the
    change than ``_EXPLAINED`` says that the time was lost elsewhere.
    """
    if not layers or layers[-1].change <= 0:
        return False
    for compared in comparisons:
        if compared.quantity == "latency":
            lost = compared.b - compared.a
            return not lost > 0 or layers[-1].change >= _EXPLAINED * lost
    return True


class _Layer(NamedTuple):
    """A layer of one side: its type, the shape of its output, and its seconds a call."""

    type: str
    shape: Any
    seconds: float


class _Row(NamedTuple):
    name: str
    type: str
    a: float | None
    b: float | None

    @property
    def change(self) -> float:
        return (self.b or 0.0) - (self.a or 0.0)


def _rows(a: Mapping[str, _Layer], b: Mapping[str, _Layer]) -> list[_Row]:
    """Return the layers of A, each with its seconds in B, and then those that only B has."""
    pairs = _pairs(a, b)
    rows = []
    for name, layer in a.items():
        other = pairs.get(name)
        after = None if other is None else b[other].seconds
        rows.append(_Row(other or name, layer.type, layer.seconds, after))
    matched = set(pairs.values())
    for name, layer in b.items():
        if name not in matched:
            rows.append(_Row(name, layer.type, None, layer.seconds))
    return rows


def _pairs(a: Mapping[str, _Layer], b: Mapping[str, _Layer]) -> dict[str, str]:
    """Return which layer of B each layer of A is.

    Frameworks count in names, so that one more operator in front renames all: layers are matched by
    name, type and shape, or else by what is left of a name without its numbers, type, shape and
    order, whichever matches more of them. The rest is matched by name.
    """
    has_shapes = all(any(layer.shape for layer in side.values()) for side in (a, b))
    ours = {name: _kind(layer, has_shapes) for name, layer in a.items()}
    theirs = {name: _kind(layer, has_shapes) for name, layer in b.items()}
    same = {name: name for name in a if ours[name] == theirs.get(name)}
    ordered = _in_order(ours, theirs)
    pairs = same if len(same) >= len(ordered) else ordered
    left = set(b) - set(pairs.values())
    by_name = {name: name for name in a if name in left and name not in pairs}
    return {**by_name, **pairs}


def _kind(layer: _Layer, has_shapes: bool) -> tuple[str, tuple[Any, ...]]:
    """Return the type of a layer and the shape of its output, none where shapes are unknown."""
    shape = tuple(layer.shape or ()) if has_shapes else ()
    return layer.type, shape


def _in_order(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, str]:
    """Return the layers of the longest runs that are alike and in the same order.

    Where too many are alike for that, they are the first of its kind, the second, and so on.
    """
    ours, theirs = list(a), list(b)
    our_keys = [(_NUMBER.sub("#", name), kind) for name, kind in a.items()]
    their_keys = [(_NUMBER.sub("#", name), kind) for name, kind in b.items()]
    their_counts = Counter(their_keys)
    alike = sum(their_counts[key] for key in our_keys)
    pairs: dict[str, str] = {}
    if alike > _MOST_ALIKE:
        of_kind = dict(zip(_numbered(their_keys), theirs, strict=True))
        for name, key in zip(ours, _numbered(our_keys), strict=True):
            if key in of_kind:
                pairs[name] = of_kind[key]
        return pairs
    matcher = SequenceMatcher(a=our_keys, b=their_keys, autojunk=False)
    for first, second, size in matcher.get_matching_blocks():
        pairs.update(zip(ours[first : first + size], theirs[second:], strict=False))
    return pairs


def _numbered(keys: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Yield each key with the number of equal ones before it."""
    seen: Counter[Any] = Counter()
    for key in keys:
        yield key, seen[key]
        seen[key] += 1


def _layers(profiles: Iterable[Profile]) -> dict[str, _Layer]:
    """Return the layers by name, in the order in which they ran first."""
    taken = defaultdict(list)
    facts: dict[str, tuple[str, Any]] = {}
    for _, _, layers, *_ in profiles:
        for name, seconds in _seconds_in_call(layers).items():
            taken[name].append(seconds)
        for name, kind, _, _, *more in layers:
            shape = more[1] if len(more) > 1 else None
            facts.setdefault(name, (kind, shape))
    found = {}
    for name, (kind, shape) in facts.items():
        found[name] = _Layer(kind, shape, median(taken[name]))
    return found


def _seconds_in_call(layers: Iterable[Any]) -> dict[str, float]:
    """Return the seconds of each layer in one call, in which it may run several times.

    Those of a loop or a branch are without its body's, which are layers, too.
    """
    total: dict[str, float] = defaultdict(float)
    holding: list[tuple[str, float]] = []
    for name, kind, start, end, *_ in sorted(layers, key=lambda layer: (layer[2], -layer[3])):
        total[name] += end - start
        while holding and holding[-1][1] < end:
            holding.pop()
        if holding:
            total[holding[-1][0]] -= end - start
        if kind in _HOLDING:
            holding.append((name, end))
    return total


def _sum_of(label: str, rows: Sequence[_Row]) -> _Row:
    before = sum(row.a or 0.0 for row in rows)
    after = sum(row.b or 0.0 for row in rows)
    return _Row(label, "", before, after)


def _shown(row: _Row, whole: float | None) -> LayerChange:
    share = None if whole is None else row.change / whole
    return LayerChange(row.name, row.type, row.a, row.b, row.change, share)
