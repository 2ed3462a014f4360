"""Comparison of two runs: the same items on both sides, and how far their estimates moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Verdict
from pytest_mlms.decide.upgrade.labels import percent
from pytest_mlms.keep.results.line import OF_LIMITS, EstimateRecord
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.run import RunView

Key: TypeAlias = tuple[str, ...]
Items: TypeAlias = Mapping[str, ItemView]
"""Node id -> item."""


@dataclass(frozen=True)
class Moved:
    """A quantity on both sides.

    ``ratio`` is B over A, None where A is 0 or missing, or where another counter told it, or other
    limits were met. ``apart`` is whether the intervals don't overlap: a hint, and no verdict, as
    nothing else than the run is known to differ between the sides.
    """

    quantity: str
    a: EstimateRecord
    b: EstimateRecord
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
    def title(self) -> str:
        """The title of B, and that of A where it has another one, as of a stack."""
        title = self.b.title
        if self.a.title != title:
            title = f"{self.a.title} → {title}"
        return f"{title}, which measures something else" if self.differs else title

    @property
    def differs(self) -> bool:
        """True if the sides are known to measure something else: no values are compared then."""
        definitions = {self.a.definition, self.b.definition}
        if "" not in definitions and len(definitions) > 1:
            return True
        one, other = self.a.load, self.b.load
        return one is not None and other is not None and one.measured != other.measured

    @property
    def is_changed(self) -> bool:
        """True if the verdict or what is measured is another one, or a quantity is surely apart."""
        is_apart = any(moved.apart for moved in self.moved)
        return self.a.verdict != self.b.verdict or self.differs or is_apart


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

        def order(item: ComparedItem) -> tuple[int, float]:
            ratios = [abs(moved.ratio - 1) for moved in item.moved if moved.ratio is not None]
            return list(Verdict).index(item.b.verdict), -max(ratios, default=0.0)

        return sorted((item for item in self.items if item.is_changed), key=order)


def compare_runs(a: RunView, b: RunView) -> CompareView:
    """Return the comparison of two runs, of which ``a`` is the baseline.

    Items are matched by their node ids, and the others by model, kind, case and framework, where
    each side has one: of several stacks that have other names, nobody knows which were meant.
    """
    left = {item.nodeid: item for item in a.items}
    right = {item.nodeid: item for item in b.items}
    pairs = _pairs(left, right)
    compared = [ComparedItem(one, other, tuple(_moved(one, other))) for one, other in pairs]
    for one, other in pairs:
        del left[one.nodeid]
        del right[other.nodeid]
    only_a = [item.title for item in left.values()]
    only_b = [item.title for item in right.values()]
    names = (f"run {a.name}", f"run {b.name}")
    return CompareView(*names, tuple(compared), tuple(only_a), tuple(only_b))


def _pairs(left: Items, right: Items) -> Sequence[tuple[ItemView, ItemView]]:
    """Return the items of both sides: first those of one node id, then those alone with a key."""
    pairs = [(item, right[nodeid]) for nodeid, item in left.items() if nodeid in right]
    rest = _by_key(left, right), _by_key(right, left)
    for key, one in rest[0].items():
        other = rest[1].get(key, ())
        if len(one) == len(other) == 1:
            pairs.append((one[0], other[0]))
    return pairs


def _by_key(items: Items, others: Items) -> Mapping[Key, Sequence[ItemView]]:
    """Return the items of a side that the other one has not, by what they measure.

    What their stacks are called is no part of it.
    """
    found: dict[Key, list[ItemView]] = {}
    for nodeid, item in items.items():
        if nodeid not in others:
            parts = (item.manifest.name, item.kind, item.framework, item.variant, item.device)
            case = (item.batch_size, item.scenario_and_load, item.shape, item.caches)
            found.setdefault(tuple(map(str, (*parts, *case))), []).append(item)
    return found


def _moved(a: ItemView, b: ItemView) -> Iterator[Moved]:
    if ComparedItem(a, b, ()).differs:
        return
    for name, before in a.estimates.items():
        after = b.estimates.get(name)
        if after is None or before.value is None or after.value is None:
            continue
        is_alike = before.counter == after.counter and (name != OF_LIMITS or a.load == b.load)
        ratio = after.value / before.value if before.value and is_alike else None
        known = QUANTITIES.get(name)
        lower_is_better = known is None or known.better == "lower"
        yield Moved(
            quantity=name,
            a=before,
            b=after,
            ratio=ratio,
            apart=is_alike and _is_apart(before, after),
            better=(after.value < before.value) == lower_is_better,
        )


def _is_apart(a: EstimateRecord, b: EstimateRecord) -> bool:
    """Return whether two intervals don't overlap; without intervals it is not known."""
    if a.lacking or b.lacking:
        return False
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.high < b.low or b.high < a.low
