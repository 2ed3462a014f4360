"""Curves over batch sizes: one model, device and scenario, a line for each stack and run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_mlms.keep.results.line import EstimateRecord
from pytest_mlms.show.pages.item import ItemView

Group: TypeAlias = tuple[str, str, str]
"""Model, device and scenario."""

CURVES = ("latency_p50", "throughput")
"""The quantities that are shown over batch sizes."""


@dataclass(frozen=True)
class Curves:
    """The estimates of a quantity by the label of a line, each by batch size from the smallest."""

    model: str
    device: str
    scenario: str
    quantity: str
    unit: str
    stacks: Mapping[str, Mapping[int, EstimateRecord]]

    @property
    def batch_sizes(self) -> Sequence[int]:
        """All batch sizes that a stack was measured at."""
        return sorted({batch for points in self.stacks.values() for batch in points})


def curves_of(items: Iterable[ItemView]) -> Sequence[Curves]:
    """Return the curves that have something to compare: batch sizes, or stacks at one of them."""
    found = []
    for (model, device, scenario), group in _groups(items).items():
        for quantity in CURVES:
            stacks = _by_line(group, quantity)
            points = [point for points in stacks.values() for point in points.values()]
            if len(points) >= 2:
                unit = points[0].unit
                found.append(Curves(model, device, scenario, quantity, unit, stacks))
    return found


def _groups(items: Iterable[ItemView]) -> Mapping[Group, Sequence[ItemView]]:
    groups: dict[Group, list[ItemView]] = {}
    for item in items:
        if item.kind == "performance" and item.estimates:
            group = (
                item.manifest.name,
                item.device,
                " ".join(filter(None, (item.scenario, item.shape))),
            )
            groups.setdefault(group, []).append(item)
    return groups


def _by_line(items: Sequence[ItemView], quantity: str) -> dict[str, dict[int, EstimateRecord]]:
    """Return the estimates of a quantity by line and batch size.

    The label of a line has the stack, and of framework, variant, host and run what differs.
    """
    facts = [(item.framework, item.variant, item.machine.host, item.run) for item in items]
    differ = [len(set(values)) > 1 for values in zip(*facts, strict=True)]
    lines: dict[str, dict[int, EstimateRecord]] = {}
    for item, known in sorted(zip(items, facts, strict=True), key=lambda one: one[0].batch_size):
        estimate = item.estimates.get(quantity)
        if estimate is None or not estimate.value or estimate.lacking:
            continue
        told = [fact for fact, is_told in zip(known, differ, strict=True) if is_told and fact]
        label = " ".join(dict.fromkeys([item.stack_label, *told]))
        lines.setdefault(label, {})[item.batch_size] = estimate
    return lines
