"""Rooflines of layers and models: the performance that a device allows for their work.

Williams, Waterman and Patterson 2009 (https://doi.org/10.1145/1498765.1498785): the attainable
operations per second are the lesser of the peak, and of the peak bandwidth times the operations per
byte. Operations and bytes are static counts (``pytest_mlms.measure.structure.cost``): only
convolutions and matrix products have operations, and caches are not modelled.

Frameworks rename, fuse and reorder layers. A measured convolution or product gets the work of one
of the model's, which is found by what is sure: its name; its place, where each convolution or
product needs the one before, so that there is only one order; or its shape, where all that it could
be have the same work. Otherwise its work is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from pytest_mlms.measure.structure.cost import LayerCost
from pytest_mlms.measure.trace.records import LayerWork, Peaks
from pytest_mlms.measure.trace.tables import LayerRow

_QUANTIZED = re.compile("qlinear|qgemm|integer|nbits|quantize", re.IGNORECASE)


@dataclass(frozen=True)
class Work:
    """Known operations and bytes for a whole batch."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class RooflinePoint:
    """A point of a roofline.

    ``intensity`` is operations per byte. ``efficiency`` is the reached share of the attainable
    operations per second, and ``bound`` is what limits them: ``compute`` or ``memory``. Where more
    than the attainable was reached, it is ``cache`` instead of memory, as data came faster than
    memory gives them, or ``above peak``: the peak was measured too low, or fewer operations were
    done than counted (Winograd).
    """

    intensity: float
    gflops_per_s: float
    attainable_gflops_per_s: float
    efficiency: float
    bound: str


def roofline_point(work: Work, seconds: float, peaks: Peaks) -> RooflinePoint | None:
    """Return the point of work that takes ``seconds``; None where there is no work or no time."""
    if not work.flops or not work.bytes or not seconds > 0:
        return None
    intensity = work.flops / work.bytes
    reached = work.flops / seconds
    allowed_by_memory = intensity * peaks.bytes
    attainable = min(peaks.flops, allowed_by_memory)
    efficiency = reached / attainable
    if allowed_by_memory >= peaks.flops:
        bound = "compute" if efficiency <= 1 else "above peak"
    else:
        bound = "memory" if efficiency <= 1 else "cache"
    return RooflinePoint(
        intensity=intensity,
        gflops_per_s=reached / 1e9,
        attainable_gflops_per_s=attainable / 1e9,
        efficiency=efficiency,
        bound=bound,
    )


def has_roof(layer_type: str) -> bool:
    """Return whether the peak of float32 limits a layer; quantized layers have others."""
    return not _QUANTIZED.search(layer_type)


def work_of(layer: LayerCost) -> LayerWork:
    """Return the work of a layer, in bytes of its inputs, outputs and weights."""
    moved = None
    if layer.input_bytes is not None and layer.output_bytes is not None:
        moved = layer.weight_bytes + layer.input_bytes + layer.output_bytes
    return LayerWork(
        name=layer.name,
        type=layer.type,
        flops=layer.flops,
        bytes=moved,
        reads=layer.reads,
        writes=layer.writes,
        shape=layer.shape,
    )


_FUSABLE = {
    "Add",
    "BatchNormalization",
    "BiasAdd",
    "Clip",
    "Elu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Mul",
    "PRelu",
    "Relu",
    "Sigmoid",
    "Sub",
    "Tanh",
}
"""Types of layers that frameworks fuse into the convolution or product before."""

_PRODUCT_NAMES = (
    "gemm",
    "matmul",
    r"(?<!bi)(?<!tri)(?<!quantize)(?<!\bq)(?<!upsample_)linear",
    "innerproduct",
    "inner_product",
    "(?<!to)dense(?!to)",
    "fully_?connected",
    "addmm",
    "^fc$",
    "(?<!element)times",
)
_PRODUCTS = re.compile("|".join(_PRODUCT_NAMES), re.IGNORECASE)
_ADDED = re.compile(r"^fused |(_nchwc|/\w+Fusion/?)?(_token_\d+)?$")
"""Parts that ONNX Runtime adds to the name of a node or of its output when it fuses or reorders."""
_BLOCK = 16
"""Channels are padded to a multiple of this in a blocked memory layout (NCHWc), at most."""


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
    """Return the static work of each measured layer, None where it is not sure.

    What was fused into a convolution or product counts as part of it. Other layers are matched by
    name alone.
    """
    works = _works_by_name(layers, static)
    heavy = [layer for layer in layers if _kind(layer.type)]
    groups = _fused_groups(static, {layer.name for layer in layers if not _kind(layer.type)})
    works.update(_match_groups(heavy, groups, static))
    return [works.get(layer.index) for layer in layers]


@dataclass(frozen=True)
class _Group:
    """A convolution or product, with the layers that may be fused into it, in order."""

    parts: tuple[LayerWork, ...]

    @property
    def kind(self) -> str:
        """``conv`` or ``product``."""
        return _kind(self.parts[0].type)

    @property
    def names(self) -> set[str]:
        """The names that a framework may give to the fused layer."""
        names = set()
        for part in self.parts:
            names.add(part.name)
            names.update(part.writes)
        return names

    @property
    def shapes(self) -> set[tuple[int, ...]]:
        """The shapes that the fused layer's output may have."""
        return {part.shape for part in self.parts if part.shape is not None}

    @property
    def work(self) -> Work | None:
        """All operations, and the bytes of the first part; None where one is unknown."""
        moved = self.parts[0].bytes
        flops = 0
        for part in self.parts:
            if part.flops is None:
                return None
            flops += part.flops
        if moved is None:
            return None
        return Work(flops, moved)


def _works_by_name(
    layers: Sequence[LayerRow], static: Sequence[LayerWork]
) -> dict[int, Work | None]:
    """Return the work of layers that are no convolution or product, by their index."""
    named = {layer.name: _Group((layer,)).work for layer in static if not _kind(layer.type)}
    works = {}
    for layer in layers:
        if not _kind(layer.type) and layer.name in named:
            works[layer.index] = named[layer.name]
    return works


def _fused_groups(static: Sequence[LayerWork], measured: Set[str]) -> list[_Group]:
    """Return each convolution or product with the layers that may have been fused into it.

    Each of these is the only one that reads what the part before it writes, and was not measured by
    itself.
    """
    readers: dict[str, list[LayerWork]] = {}
    for layer in static:
        for name in layer.reads:
            readers.setdefault(name, []).append(layer)
    groups = []
    for layer in static:
        if _kind(layer.type):
            groups.append(_Group(tuple(_chain(layer, readers, measured))))
    return groups


def _chain(
    first: LayerWork, readers: Mapping[str, Sequence[LayerWork]], measured: Set[str]
) -> Iterable[LayerWork]:
    """Yield a layer, and those that follow it and can be fused into it."""
    layer = first
    while True:
        yield layer
        following = [reader for name in layer.writes for reader in readers.get(name, ())]
        if len(following) != 1:
            return
        (layer,) = following
        if layer.type not in _FUSABLE or layer.name in measured:
            return


def _match_groups(
    heavy: Sequence[LayerRow], groups: Sequence[_Group], static: Sequence[LayerWork]
) -> dict[int, Work | None]:
    """Return the work of measured convolutions and products by their index."""
    works = {}
    paired = _pair_by_name(heavy, groups)
    for layer in heavy:
        if layer.index in paired:
            works[layer.index] = paired[layer.index].work
    rest = [layer for layer in heavy if layer.index not in paired]
    taken = {id(group) for group in paired.values()}
    free = [group for group in groups if id(group) not in taken]
    kinds = [_kind(layer.type) for layer in rest]
    if kinds == [group.kind for group in free] and _have_one_order(groups, static):
        for layer, group in zip(rest, free, strict=True):
            works[layer.index] = group.work
        return works
    for layer in rest:
        kind = _kind(layer.type)
        candidates = [group for group in free if group.kind == kind]
        if len(candidates) == kinds.count(kind):
            works[layer.index] = _work_by_shape(layer, candidates)
    return works


def _pair_by_name(heavy: Sequence[LayerRow], groups: Sequence[_Group]) -> dict[int, _Group]:
    """Return the group of each layer whose name tells it, by the layer's index.

    Names that several groups or several layers have tell nothing.
    """
    owners: dict[tuple[str, str], list[_Group]] = {}
    for group in groups:
        for name in group.names:
            owners.setdefault((group.kind, name), []).append(group)
    found: dict[int, _Group] = {}
    for layer in heavy:
        for name in (layer.name, _ADDED.sub("", layer.name)):
            candidates = owners.get((_kind(layer.type), name), [])
            if len(candidates) == 1:
                found[layer.index] = candidates[0]
                break
    claims = [id(group) for group in found.values()]
    return {index: group for index, group in found.items() if claims.count(id(group)) == 1}


def _have_one_order(groups: Sequence[_Group], static: Sequence[LayerWork]) -> bool:
    """Return whether each convolution or product depends on the one before, so all run in order."""
    depths: dict[str, int] = {}
    for layer in static:
        depth = max((depths.get(name, 0) for name in layer.reads), default=0)
        if _kind(layer.type):
            depth += 1
        for name in layer.writes:
            depths[name] = depth
    return max(depths.values(), default=0) == len(groups)


def _work_by_shape(layer: LayerRow, groups: Collection[_Group]) -> Work | None:
    """Return the work that all groups have which the layer could be; None where they differ."""
    works = set()
    for group in groups:
        if _may_be(layer.shape, group.shapes):
            works.add(group.work)
    if len(works) != 1:
        return None
    return works.pop()


def _may_be(measured: str, shapes: Iterable[tuple[int, ...]]) -> bool:
    """Return whether a measured shape, as text, may be one of these; an unknown one may be any."""
    if not measured:
        return True
    sizes = tuple(int(size) for size in measured.split(" x "))
    return any(sizes in (shape, _padded(shape)) for shape in shapes)


def _padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with its channels, axis 1, padded to a whole block."""
    if len(shape) < 2:
        return shape
    blocks = math.ceil(shape[1] / _BLOCK)
    return (shape[0], blocks * _BLOCK, *shape[2:])


def _kind(layer_type: str) -> str:
    """Return ``conv`` or ``product`` for a framework's name of such a layer, else nothing."""
    lowered = layer_type.lower()
    if "conv" in lowered and "convert" not in lowered:
        return "conv"
    if _PRODUCTS.search(layer_type):
        return "product"
    return ""
