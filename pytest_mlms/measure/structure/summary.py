"""Summary of a model's static cost for the results of its items: sums in all, and by type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_mlms.measure.structure.cost import LayerCost, ModelCost

_MOST_TYPES = 30


@dataclass(frozen=True)
class TypeCost:
    """The layers of a type: their number, and the sums of what is known of their cost."""

    type: str
    layers: int
    parameters: int
    flops: int
    weight_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class CostSummary:
    """The sums of a model's static cost for a batch, as ``ModelCost`` has them.

    ``layers`` is their number. ``types`` are those with the most operations, then with the largest
    weights and outputs. ``unknown`` are the types of layers whose operations or outputs are
    unknown.
    """

    layers: int
    parameters: int
    flops: int
    weight_bytes: int
    activation_bytes: int
    peak_bytes: int | None
    counter: str
    types: tuple[TypeCost, ...] = ()
    unknown: tuple[str, ...] = ()


def summarize_cost(cost: ModelCost) -> CostSummary:
    """Return the summary of a model's cost."""
    by_type: dict[str, list[LayerCost]] = {}
    for layer in cost.layers:
        by_type.setdefault(layer.type, []).append(layer)
    types = [_cost_of_type(name, layers) for name, layers in by_type.items()]
    types.sort(key=lambda each: (each.flops, each.weight_bytes, each.output_bytes), reverse=True)
    return CostSummary(
        layers=len(cost.layers),
        parameters=cost.parameters,
        flops=cost.flops,
        weight_bytes=cost.weight_bytes,
        activation_bytes=cost.activation_bytes,
        peak_bytes=cost.peak_bytes,
        counter=cost.counter,
        types=tuple(types[:_MOST_TYPES]),
        unknown=cost.unknown,
    )


def _cost_of_type(name: str, layers: Sequence[LayerCost]) -> TypeCost:
    return TypeCost(
        type=name,
        layers=len(layers),
        parameters=sum(layer.parameters for layer in layers),
        flops=sum(layer.flops or 0 for layer in layers),
        weight_bytes=sum(layer.weight_bytes for layer in layers),
        output_bytes=sum(layer.output_bytes or 0 for layer in layers),
    )
