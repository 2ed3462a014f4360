"""The points of a manifest's cases, and the points that measure and judge a quantity."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.records import Kind, Limit
from pytest_mlms.manifest.scenarios import Load, Peak
from pytest_mlms.manifest.schema import Manifest, Model


class Point(NamedTuple):
    """A batch size, for performance the label of a scenario, and a shape where there are some."""

    batch_size: int
    scenario: str | None
    shape: str | None = None


def points_of(kind: Kind, manifest: Manifest) -> list[Point]:
    """Return the points of one kind: of those that are timed, each with each shape.

    A dataset is one of the shapes: inputs are drawn for the others.
    """
    points = _points_of_a_shape(kind, manifest)
    named = manifest.evaluate.named_shapes
    if kind not in ("performance", "upgrade", "soak") or not named:
        return points
    shapes = [*([None] if manifest.dataset else []), *named]
    return [point._replace(shape=shape) for point in points for shape in shapes]


def _points_of_a_shape(kind: Kind, manifest: Manifest) -> list[Point]:
    evaluate = manifest.evaluate
    if kind == "performance":
        points = []
        for label, entry in evaluate.scenario_labels.items():
            sizes = [min(evaluate.batch_sizes)] if entry.load else evaluate.batch_sizes
            points += [Point(size, label) for size in sizes]
        return points
    if kind in ("upgrade", "trace", "soak"):
        points = [Point(size, None) for size in evaluate.batch_sizes]
        return points + _compared_loads(manifest) if kind == "upgrade" else points
    if manifest.has_state:  # a batch of N goes through N sequences side by side
        return [Point(min(evaluate.batch_sizes), None)]
    return [Point(max(evaluate.batch_sizes), None)]


def _compared_loads(manifest: Manifest) -> list[Point]:
    """Return the loads that an upgrade compares."""
    evaluate = manifest.evaluate
    size = min(evaluate.batch_sizes)
    labels = evaluate.scenario_labels.items()
    return [Point(size, label) for label, entry in labels if entry.load]


def measures(kind: Kind, quantity: str, load: Load | None, device: str) -> bool:
    """Return whether a case measures a quantity, as far as its load and its device decide that.

    A peak is searched by queries alone, and each round of an upgrade has calls beside its load.
    """
    known = QUANTITIES.get(quantity)
    if known is not None and known.of_gpu and device == "cpu":
        return False
    if known is not None and known.under_load:
        return load is not None and isinstance(load, Peak) == (quantity == "peak_rate")
    if kind == "upgrade" or load is None:
        return True
    return not isinstance(load, Peak) and quantity not in _OF_FURTHER_CALLS


_OF_FURTHER_CALLS = ("memory_growth", "batch_agreement", "device_time")
"""Quantities that take further calls one after the other, which loads don't make."""


def is_judged(
    limit: Limit, kind: Kind, manifest: Manifest, model: Model, device: str, point: Point
) -> bool:
    """Return whether a limit judges a case of a kind."""
    load, name = None, None
    if point.scenario is not None:
        entry = manifest.evaluate.scenario_labels[point.scenario]
        load, name = entry.load, entry.name
    return (
        measures(kind, limit.quantity, load, device)
        and _selects(limit.batch_sizes, point.batch_size)
        and _selects(limit.scenarios, name)
        and _selects(limit.shapes, point.shape)
        and _selects(limit.devices, device)
        and (not limit.frameworks or not model.names.isdisjoint(limit.frameworks))
    )


def _selects(selected: Collection[Any], value: Any) -> bool:
    """Return whether a limit's filter selects a value; an empty filter selects all."""
    return not selected or value in selected


def idle_text(limit: Limit, manifest: Manifest) -> str:
    """Return what is wrong with a limit that judges no case; "" where it judges one."""
    quantity = QUANTITIES[limit.quantity]
    for point in points_of(quantity.kind, manifest):
        for model in manifest.models:
            for device in manifest.evaluate.devices:
                if is_judged(limit, quantity.kind, manifest, model, device, point):
                    return ""
    names = ("batch_sizes", "scenarios", "shapes", "devices")
    filters = {name: getattr(limit, name) for name in names}
    named = [f"{name} {', '.join(map(str, each))}" for name, each in filters.items() if each]
    if not named:
        return f"{quantity.limit_key} judges nothing; no scenario here measures it: add another"
    least = min(manifest.evaluate.batch_sizes)
    return (
        f"{quantity.limit_key} judges nothing; no case that measures it has {' and '.join(named)} "
        f"(under load the batch size is {least}): correct these"
    )
