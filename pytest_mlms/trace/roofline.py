"""The roofline of layers and models: what their operations and bytes allow on a device whose peaks
were measured.

Williams, Waterman, Patterson 2009 (https://doi.org/10.1145/1498765.1498785): attainable operations
a second are the lesser of the peak, and of the peak bandwidth times the operations for each byte
moved. Operations and bytes are static counts (pytest_mlms.structure.cost): convolutions and
products alone have operations, and caches are not seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_mlms.trace.tables import LayerRow

__all__ = ["Point", "Work", "match", "point"]


@dataclass(frozen=True)
class Work:
    """Operations and bytes of a layer for a whole batch."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class Point:
    """A dot of the roofline.

    Operations for each byte, operations a second, the roof over it, and what bounds it.
    """

    intensity: float
    gflops_per_s: float
    attainable_gflops_per_s: float
    efficiency: float
    bound: str


def point(work: Work, seconds: float, peaks: Mapping[str, float]) -> Point | None:
    """Return where the work lies, done in ``seconds``; ``peaks`` are flops and bytes a second.

    None without work.
    """
    if not work.flops or not work.bytes or not seconds > 0:
        return None
    intensity, reached = work.flops / work.bytes, work.flops / seconds
    roof = min(peaks["flops"], intensity * peaks["bytes"])
    bound = "compute" if intensity * peaks["bytes"] >= peaks["flops"] else "memory"
    return Point(intensity, reached / 1e9, roof / 1e9, reached / roof, bound)


def match(layers: Sequence[LayerRow], static: Sequence[Mapping[str, Any]]) -> list[Work | None]:
    """Return the work of each measured layer, from the static ones: by name, else convolutions and
    products by order.

    Frameworks rename and fuse layers, and a fused one may bear the name of its last part. Where as
    many convolutions and products were measured as the model has, they are taken to be the same
    ones in the same order, and what was fused into them counts as theirs.
    """
    named = {(str(one["name"]), _heavy(one["type"])): _work([one]) for one in static}
    keys = [(layer.name, _heavy(layer.type)) for layer in layers]
    heavy = [index for index, (_, kind) in enumerate(keys) if kind]
    if heavy and all(keys[index] in named for index in heavy):
        return [named.get(key) for key in keys]
    groups = list(_fused(static, {layer.type.lower() for layer in layers}))
    found: list[Work | None] = [None] * len(layers)
    if len(groups) == len(heavy) and all(
        _heavy(layers[index].type) == _heavy(group[0]["type"])
        for index, group in zip(heavy, groups, strict=True)
    ):
        for index, group in zip(heavy, groups, strict=True):
            found[index] = _work(group)
    return found


def _fused(
    static: Sequence[Mapping[str, Any]], measured: set[str]
) -> Iterable[list[Mapping[str, Any]]]:
    """Yield each convolution or product with the elementwise layers after it that were not measured
    by themselves.
    """
    group: list[Mapping[str, Any]] = []
    for one in static:
        if _heavy(one["type"]):
            if group:
                yield group
            group = [one]
        elif group and one["type"].lower() not in measured and one["type"] in _ELEMENTWISE:
            group.append(one)
    if group:
        yield group


def _work(group: Sequence[Mapping[str, Any]]) -> Work | None:
    flops, moved = [one["flops"] for one in group], [one["bytes"] for one in group[:1]]
    return None if None in flops or None in moved else Work(sum(flops), sum(moved))


_ELEMENTWISE = ("Add", "BiasAdd", "Clip", "Relu", "Sigmoid")
_PRODUCTS = re.compile(
    r"gemm|matmul|linear|innerproduct|inner_product|dense|fully_?connected|addmm|^fc$|times", re.I
)


def _heavy(kind: str) -> str:
    """Return ``conv`` or ``product`` for a framework's word for such a layer, else nothing."""
    if "conv" in kind.lower() and "convert" not in kind.lower():
        return "conv"
    return "product" if _PRODUCTS.search(kind) else ""
