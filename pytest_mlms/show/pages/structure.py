"""A model's structure and static cost, as a trace of the model recorded them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_mlms.core.units import format_quantity
from pytest_mlms.measure.trace.records import CostSummary
from pytest_mlms.show.pages.canvas import Context
from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.pages.numbers import NONE, count_text


@dataclass(frozen=True)
class StructureView:
    """A model in a framework's format: its layers, parameters, operations and bytes for a batch."""

    framework: str
    version: str
    batch_size: int
    time: str
    cost: CostSummary

    @property
    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield the names and texts of the numbers."""
        cost = self.cost
        yield "layers", f"{cost.layers:,}"
        yield "parameters", count_text(cost.parameters)
        yield "multiply-accumulates", count_text(cost.flops // 2)
        yield "weights", format_quantity(cost.weight_bytes, "B")
        yield "outputs of all layers", format_quantity(cost.activation_bytes, "B")
        peak = NONE if cost.peak_bytes is None else format_quantity(cost.peak_bytes, "B")
        yield "most activations at once", peak


def structure_of(item: ItemView) -> StructureView | None:
    """Return the structure of an item's model; None where its trace didn't record one."""
    if item.trace is None or item.trace.cost is None:
        return None
    return StructureView(
        framework=item.framework,
        version=item.manifest.version,
        batch_size=item.batch_size,
        time=item.time,
        cost=item.trace.cost,
    )


def structure_section(item: ItemView) -> Context | None:
    """Return layers, parameters, operations and bytes of the model, in all and by type of layer."""
    found = structure_of(item)
    return None if found is None else {"structure": found}
