"""Comparison of two runs: the same items on both sides, and how far their estimates moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_mlms.quantities import QUANTITIES
from pytest_mlms.records import Verdict
from pytest_mlms.upgrade.labels import percent
from pytest_mlms.views.item import ItemView
from pytest_mlms.views.measured import EstimateView
from pytest_mlms.views.run import RunView

__all__ = ["CompareView", "ComparedItem", "Moved", "compare_runs", "compare_stacks"]

Key: TypeAlias = tuple[str, ...]
Items: TypeAlias = Mapping[str, ItemView]
"""Node id -> item."""


@dataclass(frozen=True)
class Moved:
    """A quantity on both sides. ``ratio`` is B over A, None where A is 0 or missing.

    ``apart`` is whether the intervals don't overlap: a hint, and no verdict, as nothing else than
    the run is known to differ between the sides.
    """

    quantity: str
    a: EstimateView
    b: EstimateView
    ratio: float | None
    apart: bool
    better: bool

    @property
    def change(self) -> str:
        """The change from A to B in percent."""
        if self.ratio is None:
            return "-"
        sign = "+" if self.ratio >= 1 else "−"
        return f"{sign}{percent(abs(self.ratio - 1))}"


@dataclass(frozen=True)
class ComparedItem:
    """An item that both sides have."""

    a: ItemView
    b: ItemView
    moved: tuple[Moved, ...]

    @property
    def is_changed(self) -> bool:
        """True if the verdict is another one, or a quantity is surely apart."""
        return self.a.verdict != self.b.verdict or any(moved.apart for moved in self.moved)


@dataclass(frozen=True)
class CompareView:
    """Two sides, compared: A is the baseline. What only one of them has is listed by its title."""

    a: str
    b: str
    items: tuple[ComparedItem, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    @property
    def changed(self) -> Sequence[ComparedItem]:
        """The items with changes, the worst first."""
        found = [item for item in self.items if item.is_changed]
        return sorted(found, key=_order)


def compare_runs(a: RunView, b: RunView) -> CompareView:
    """Return the comparison of two runs, of which ``a`` is the baseline.

    Items are matched by their node ids, the others by model, kind, case and framework.
    """
    return _compare(f"run {a.name}", f"run {b.name}", a.items, b.items)


def compare_stacks(run: RunView, a: str, b: str) -> CompareView:
    """Return the comparison of two stacks of a run, by their labels."""
    sides = []
    for label in (a, b):
        sides.append([item for item in run.items if item.stack_label == label])
    return _compare(a, b, *sides)


def _compare(
    name_a: str, name_b: str, items_a: Iterable[ItemView], items_b: Iterable[ItemView]
) -> CompareView:
    left = {item.nodeid: item for item in items_a}
    right = {item.nodeid: item for item in items_b}
    pairs = _pairs(left, right)
    compared = [ComparedItem(a, b, tuple(_moved(a, b))) for a, b in pairs]
    for a, b in pairs:
        del left[a.nodeid]
        del right[b.nodeid]
    only_a = [item.title for item in left.values()]
    only_b = [item.title for item in right.values()]
    return CompareView(name_a, name_b, tuple(compared), tuple(only_a), tuple(only_b))


def _pairs(left: Items, right: Items) -> Sequence[tuple[ItemView, ItemView]]:
    """Return the items of both sides: first those of one node id, then those of one key."""
    pairs = [(item, right[nodeid]) for nodeid, item in left.items() if nodeid in right]
    rest = {_key(item): item for nodeid, item in right.items() if nodeid not in left}
    for nodeid, item in left.items():
        match = None if nodeid in right else rest.pop(_key(item), None)
        if match is not None:
            pairs.append((item, match))
    return pairs


def _key(item: ItemView) -> Key:
    """Return what an item measures, whatever its stack is called."""
    parts = (item.manifest.name, item.kind, item.framework, item.device, item.batch_size)
    return tuple(map(str, (*parts, item.scenario, item.shape)))


def _moved(a: ItemView, b: ItemView) -> Iterator[Moved]:
    for name, before in a.estimates.items():
        after = b.estimates.get(name)
        if after is None or before.value is None or after.value is None:
            continue
        ratio = after.value / before.value if before.value else None
        known = QUANTITIES.get(name)
        lower_is_better = known is None or known.better == "lower"
        yield Moved(
            quantity=name,
            a=before,
            b=after,
            ratio=ratio,
            apart=_is_apart(before, after),
            better=(after.value < before.value) == lower_is_better,
        )


def _is_apart(a: EstimateView, b: EstimateView) -> bool:
    """Return whether two intervals don't overlap; without intervals it is not known."""
    if a.lacking or b.lacking:
        return False
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.high < b.low or b.high < a.low


def _order(item: ComparedItem) -> tuple[int, float]:
    """Return the sort key of a compared item: worst verdict first, then the largest change."""
    ratios = [abs(moved.ratio - 1) for moved in item.moved if moved.ratio is not None]
    return list(Verdict).index(item.b.verdict), -max(ratios, default=0.0)
