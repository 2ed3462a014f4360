"""The static work of measured layers, although frameworks rename and fuse layers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

from pytest_mlms.trace.metadata import LayerWork
from pytest_mlms.trace.roofline import Work
from pytest_mlms.trace.tables import LayerRow

__all__ = ["match_work", "total_work"]

_ELEMENTWISE = ("Add", "BiasAdd", "Clip", "Relu", "Sigmoid")
_PRODUCT_NAMES = (
    "gemm",
    "matmul",
    "linear",
    "innerproduct",
    "inner_product",
    "dense",
    "fully_?connected",
    "addmm",
    "^fc$",
    "times",
)
_PRODUCTS = re.compile("|".join(_PRODUCT_NAMES), re.IGNORECASE)


def total_work(static: Sequence[LayerWork]) -> Work | None:
    """Return the sum of the work of all layers; None without layers or where one is unknown."""
    flops = 0
    moved = 0
    for layer in static:
        if layer.flops is None or layer.bytes is None:
            return None
        flops += layer.flops
        moved += layer.bytes
    if not static:
        return None
    return Work(flops, moved)


def match_work(layers: Sequence[LayerRow], static: Sequence[LayerWork]) -> list[Work | None]:
    """Return the static work of each measured layer, by name if possible, else by order.

    A fused layer may have the name of its last part, so that a name decides only together with the
    kind of layer. Where as many convolutions and products were measured as the model has, they are
    taken to be the same in the same order, and what was fused into them counts as theirs.
    """
    heavy = [index for index, layer in enumerate(layers) if _kind(layer.type)]
    by_name = _work_by_name(layers, static)
    if heavy and all(index in by_name for index in heavy):
        return [by_name.get(index) for index in range(len(layers))]
    by_order: list[Work | None] = [None] * len(layers)
    groups = list(_fused_groups(static, {layer.type.lower() for layer in layers}))
    measured_kinds = [_kind(layers[index].type) for index in heavy]
    static_kinds = [_kind(group[0].type) for group in groups]
    if measured_kinds == static_kinds:
        for index, group in zip(heavy, groups, strict=True):
            by_order[index] = _group_work(group)
    return by_order


def _work_by_name(
    layers: Sequence[LayerRow], static: Sequence[LayerWork]
) -> dict[int, Work | None]:
    """Return the work of the measured layers whose name and kind a static layer has."""
    named = {(layer.name, _kind(layer.type)): _group_work([layer]) for layer in static}
    found = {}
    for index, layer in enumerate(layers):
        key = layer.name, _kind(layer.type)
        if key in named:
            found[index] = named[key]
    return found


def _fused_groups(static: Sequence[LayerWork], measured: Set[str]) -> Iterator[list[LayerWork]]:
    """Yield each convolution or product with the elementwise layers that were fused into it.

    These follow it directly, and no layer of their type was measured by itself.
    """
    group: list[LayerWork] = []
    for layer in static:
        if _kind(layer.type):
            if group:
                yield group
            group = [layer]
        elif group and layer.type in _ELEMENTWISE and layer.type.lower() not in measured:
            group.append(layer)
    if group:
        yield group


def _group_work(group: Sequence[LayerWork]) -> Work | None:
    """Return the work of a fused layer: all operations, and the bytes of the first part."""
    moved = group[0].bytes
    flops = 0
    for layer in group:
        if layer.flops is None:
            return None
        flops += layer.flops
    if moved is None:
        return None
    return Work(flops, moved)


def _kind(layer_type: str) -> str:
    """Return ``conv`` or ``product`` for a framework's name of such a layer, else nothing."""
    lowered = layer_type.lower()
    if "conv" in lowered and "convert" not in lowered:
        return "conv"
    if _PRODUCTS.search(layer_type):
        return "product"
    return ""
