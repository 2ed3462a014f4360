"""The static cost of a model: parameters, operations and bytes, by layer, by type and in all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlms_predictors import Operation, Structure, Tensor

Shape = tuple[int, ...]

_Sources = dict[str, list[str]]
"""The weights behind each weight, and behind each tensor that is computed from weights alone."""


@dataclass(frozen=True)
class LayerCost:
    """The cost of a layer.

    ``type`` is the framework's name of it, ``shape`` that of its first output. ``weight_bytes`` and
    ``input_bytes`` are what it must read, ``output_bytes`` what it must write. A weight that
    several layers read counts for the first one. ``reads`` and ``writes`` are the activations that
    it takes and gives, by name.
    """

    name: str
    type: str
    shape: Shape | None
    parameters: int
    flops: int | None
    weight_bytes: int
    input_bytes: int | None
    output_bytes: int | None
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelCost:
    """The cost of a model for inputs of one size.

    ``peak_bytes`` is the most that activations hold at once if the layers run in order, each
    activation is freed after its last use, and none is overwritten in place. ``counter`` names what
    counted the operations.
    """

    layers: tuple[LayerCost, ...]
    peak_bytes: int | None
    counter: str

    @property
    def parameters(self) -> int:
        """The number of elements of all weights, each counted once."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def weight_bytes(self) -> int:
        """The bytes of all weights, each counted once."""
        return sum(layer.weight_bytes for layer in self.layers)

    @property
    def flops(self) -> int:
        """The operations of the layers where they are known."""
        return sum(layer.flops or 0 for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        """The bytes of all outputs of layers where they are known."""
        return sum(layer.output_bytes or 0 for layer in self.layers)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The types of layers whose operations or outputs are unknown."""
        types = set()
        for layer in self.layers:
            if layer.flops is None or layer.output_bytes is None:
                types.add(layer.type)
        return tuple(sorted(types))


def cost_of(structure: Structure) -> ModelCost:
    """Return the cost of a model by its structure.

    A tensor that is computed from weights alone counts as those weights, and its layer not at all.
    """
    graph = _Graph(structure)
    layers = tuple(graph.costs())
    return ModelCost(layers, graph.peak_bytes(), structure.counter)


def bound_shape(
    name: str, sizes: Sequence[int | str | None], batch_size: int, axes: Mapping[str, int]
) -> Shape:
    """Return an input's shape with its free axes bound.

    ``sizes`` has numbers, names, and None for a free axis without a name. The size of a free axis
    is that in ``axes`` by its name or by its place, such as ``input.1``; that of the first axis is
    else the batch size. Raises ValueError, which names the axes that are still free.
    """
    shape = []
    missing = []
    for index, size in enumerate(sizes):
        if isinstance(size, int):
            shape.append(size)
            continue
        place = f"{name}.{index}"
        bound = axes.get(size or place, axes.get(place))
        if bound is None and index == 0:
            bound = batch_size
        if bound is None:
            missing.append(size or place)
        else:
            shape.append(bound)
    if missing:
        axes_once = dict.fromkeys(missing)
        options = " ".join(f"--axis {axis}=SIZE" for axis in axes_once)
        raise ValueError(f"input {name!r} has free axes; say {options}")
    return tuple(shape)


def known_shape(tensor: Tensor | None) -> Shape | None:
    """Return the shape of a tensor; None without a tensor, and where an axis is unknown."""
    if tensor is None:
        return None
    sizes = [size for size in tensor.shape if size is not None]
    if len(sizes) < len(tensor.shape):
        return None
    return tuple(sizes)


class _Graph:
    """A structure without layers of weights alone, and without outputs that nothing reads."""

    def __init__(self, structure: Structure) -> None:
        self._tensors = {tensor.name: tensor for tensor in structure.tensors}
        self._inputs = structure.inputs
        self._outputs = set(structure.outputs)
        self._buffers = set(structure.buffers)
        self._learned = set(structure.learned)
        self._sources = _sources_of(structure)
        self._layers = self._computing_layers(structure)

    def _computing_layers(self, structure: Structure) -> list[Operation]:
        used = set(self._outputs)
        for layer in structure.layers:
            used.update(layer.reads)
        layers = []
        for layer in structure.layers:
            if all(name in self._sources for name in layer.writes):
                continue
            reads = list(dict.fromkeys(layer.reads))
            writes = [name for name in layer.writes if name in used]
            if not writes:  # its first output stands for all of them
                writes = layer.writes[:1]
            computing = layer._replace(reads=reads, writes=writes)
            layers.append(computing)
        return layers

    def costs(self) -> Iterator[LayerCost]:
        """Yield the cost of each layer; a weight counts for the first layer that reads it."""
        counted: set[str] = set()
        for layer in self._layers:
            weights = self._weights_of(layer) - counted
            counted |= weights
            activations = set(layer.reads) - self._sources.keys()
            yield LayerCost(
                name=layer.name,
                type=layer.type,
                shape=self._shape(layer.writes[0]) if layer.writes else None,
                parameters=sum(map(self._parameters, weights)),
                flops=layer.flops,
                weight_bytes=self._bytes(weights) or 0,
                input_bytes=self._bytes(activations),
                output_bytes=self._bytes(layer.writes),
                reads=tuple(name for name in layer.reads if name in activations),
                writes=tuple(layer.writes),
            )

    def _weights_of(self, layer: Operation) -> set[str]:
        """Return the weights behind what a layer reads."""
        weights = set()
        for name in layer.reads:
            weights.update(self._sources.get(name, []))
        return weights

    def peak_bytes(self) -> int | None:
        """Return the most bytes of activations at once, None where a size is unknown."""
        last_use = {}
        for index, layer in enumerate(self._layers):
            for name in layer.reads:
                last_use[name] = index
        alive = set(self._inputs)
        peak = 0
        for index, layer in enumerate(self._layers):
            alive.update(layer.writes)
            size = self._bytes(alive)
            if size is None:
                return None
            peak = max(peak, size)
            for name in alive - self._outputs:
                if last_use.get(name, -1) <= index:
                    alive.remove(name)
        return peak

    def _shape(self, name: str) -> Shape | None:
        """Return a tensor's shape, None where an axis is unknown."""
        return known_shape(self._tensors.get(name))

    def _bytes(self, names: Iterable[str]) -> int | None:
        """Return the bytes of some tensors, None where one is unknown."""
        total = 0
        for name in names:
            shape = self._shape(name)
            if shape is None:
                return None
            bits = _bits(self._tensors[name].dtype)
            if bits is None:
                return None
            total_bits = math.prod(shape) * bits
            total += (total_bits + 7) // 8
        return total

    def _parameters(self, weight: str) -> int:
        """Return the number of learned elements of a weight."""
        shape = self._shape(weight)
        if not shape or weight in self._buffers:
            return 0
        if weight in self._learned or _is_learned(self._tensors[weight]):
            return math.prod(shape)
        return 0


def _is_learned(weight: Tensor) -> bool:
    """Return whether a weight has floats or quantized numbers, rather than sizes or indices."""
    if "float" in weight.dtype:
        return True
    if weight.dtype == "bool":
        return False
    bits = _bits(weight.dtype)
    return bits is not None and bits <= 8


def _sources_of(structure: Structure) -> _Sources:
    written = set(structure.inputs)
    for layer in structure.layers:
        written.update(layer.writes)
    sources: _Sources = {}
    for layer in structure.layers:
        for name in layer.reads:
            if name not in written:
                sources[name] = [name]
        if all(name in sources for name in layer.reads):
            _add_computed(sources, layer)
    return sources


def _add_computed(sources: _Sources, layer: Operation) -> None:
    """Add the outputs of a layer that reads weights alone; a constant is a weight of its own."""
    behind = []
    for name in layer.reads:
        behind += sources[name]
    for name in layer.writes:
        sources[name] = behind if layer.reads else [name]


def _bits(dtype: str) -> int | None:
    """Return the bits of an element by its type's name, None for text and other objects."""
    if dtype == "bool":
        return 8
    match = re.match(r"[a-z]+(\d+)", dtype)
    if match is None:
        return None
    return int(match[1])
