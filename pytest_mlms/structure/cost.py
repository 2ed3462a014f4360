"""What a model costs by its structure, without running it: parameters, operations and bytes, by
layer and in all.

A multiplication with its addition is two operations, and only those of convolutions and matrix
products are counted, as torch.utils.flop_counter does: the rest is bound by memory, not by
arithmetic. What can't be told, such as what a recurrent layer computes, is None, and sums are then
of what is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlms_predictors import Operation, Structure

__all__ = ["Described", "LayerCost", "Shape", "bound_shape", "describe"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerCost:
    """One layer: ``type`` is the framework's, ``shape`` its first output's, bytes are what it must
    read and write.
    """

    name: str
    type: str
    shape: Shape | None
    parameters: int
    flops: int | None
    weight_bytes: int
    input_bytes: int | None
    output_bytes: int | None


@dataclass(frozen=True)
class Described:
    """A model for inputs of some size.

    ``peak_bytes`` is the most that activations hold at once, in the order of the layers, if each is
    freed after its last use and none is overwritten in place. ``unknown`` are the types of layers
    whose operations or shapes can't be told, ``counter`` says who counted.
    """

    layers: tuple[LayerCost, ...]
    peak_bytes: int | None
    counter: str

    @property
    def parameters(self) -> int:
        """The weights' elements, each once."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def weight_bytes(self) -> int:
        """The weights' bytes, each once."""
        return sum(layer.weight_bytes for layer in self.layers)

    @property
    def flops(self) -> int:
        """The operations of the layers that can be told."""
        return sum(layer.flops or 0 for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        """The bytes of all outputs of layers that can be told."""
        return sum(layer.output_bytes or 0 for layer in self.layers)

    @property
    def unknown(self) -> tuple[str, ...]:
        """The types of what can't be told."""
        return tuple(
            sorted({x.type for x in self.layers if x.flops is None or x.output_bytes is None})
        )


def describe(structure: Structure) -> Described:
    """Sum up a structure; what is computed from weights alone is as good as a weight, and no layer."""
    graph = _Graph(structure)
    return Described(tuple(graph.costs()), graph.peak(), structure.counter)


def bound_shape(
    name: str, sizes: Sequence[int | str | None], batch_size: int, axes: Mapping[str, int]
) -> Shape:
    """Return an input's shape with its free axes bound: the first is the batch, others are found in
    ``axes``.

    ``sizes`` has numbers, names, and None for a free axis without a name; each also goes by its
    place: ``input.1``. Raises ValueError for those that ``axes`` lacks.
    """
    bound, lacking = [], []
    for index, size in enumerate(sizes):
        place = f"{name}.{index}"
        word = size if isinstance(size, str) else place
        found = (
            size
            if isinstance(size, int)
            else axes.get(word, axes.get(place, None if index else batch_size))
        )
        bound.append(found or 0)
        lacking += [word] if found is None else []
    if lacking:
        words = " ".join(f"--axis {word}=SIZE" for word in dict.fromkeys(lacking))
        raise ValueError(f"input {name!r} has free axes; say {words}")
    return tuple(bound)


class _Graph:
    """A structure without what is computed from weights alone, and without what nobody reads."""

    def __init__(self, structure: Structure) -> None:
        self._tensors = {tensor.name: tensor for tensor in structure.tensors}
        self._inputs, self._outputs = structure.inputs, set(structure.outputs)
        read = {name for layer in structure.layers for name in layer.reads} | self._outputs
        self._sources = _sources(structure)
        self._layers = [
            layer._replace(
                reads=list(dict.fromkeys(layer.reads)),
                writes=[name for name in layer.writes if name in read] or layer.writes[:1],
            )
            for layer in structure.layers
            if not all(name in self._sources for name in layer.writes)
        ]

    def costs(self) -> Iterator[LayerCost]:
        """Yield each layer's cost; a weight counts where it is used first."""
        seen: set[str] = set()
        for layer in self._layers:
            weights = dict.fromkeys(
                weight for name in layer.reads for weight in self._sources.get(name, ())
            )
            own = [weight for weight in weights if weight not in seen]
            seen.update(own)
            yield LayerCost(
                layer.name,
                layer.type,
                self._shape(layer.writes[0]) if layer.writes else None,
                sum(math.prod(self._shape(name) or ()) for name in own if self._is_learned(name)),
                layer.flops,
                self._bytes(own) or 0,
                self._bytes(self._fed(layer)),
                self._bytes(layer.writes),
            )

    def peak(self) -> int | None:
        """Return the most bytes of activations that are needed at once."""
        last = {name: index for index, layer in enumerate(self._layers) for name in layer.reads}
        alive, most = dict.fromkeys(self._inputs), 0
        for index, layer in enumerate(self._layers):
            alive.update(dict.fromkeys(layer.writes))
            now = self._bytes(alive)
            if now is None:
                return None
            most = max(most, now)
            alive = {
                name: None for name in alive if last.get(name, -1) > index or name in self._outputs
            }
        return most

    def _fed(self, layer: Operation) -> list[str]:
        return [name for name in layer.reads if name not in self._sources]

    def _shape(self, name: str) -> Shape | None:
        tensor = self._tensors.get(name)
        sizes = [size for size in tensor.shape if size is not None] if tensor else []
        return tuple(sizes) if tensor and len(sizes) == len(tensor.shape) else None

    def _bytes(self, names: Iterable[str]) -> int | None:
        """Return the bytes of some tensors, None where one can't be told."""
        total = 0
        for name in names:
            shape = self._shape(name)
            bits = _bits(self._tensors[name].dtype) if shape is not None else None
            if shape is None or bits is None:
                return None
            total += -(-math.prod(shape) * bits // 8)
        return total

    def _is_learned(self, name: str) -> bool:
        """Whether a weight is one that was learned: of floats, or quantized.

        Not a shape, an index or a lone number.
        """
        dtype = self._tensors[name].dtype if self._shape(name) else "none"
        return "float" in dtype or (dtype != "bool" and (_bits(dtype) or 64) <= 8)


def _sources(structure: Structure) -> dict[str, list[str]]:
    """Return the weights behind each weight, and behind each tensor that is computed from weights
    alone.
    """
    written = {name for layer in structure.layers for name in layer.writes} | set(structure.inputs)
    found: dict[str, list[str]] = {}
    for layer in structure.layers:
        found.update((name, [name]) for name in layer.reads if name not in written)
        if all(name in found for name in layer.reads):
            behind = [weight for name in layer.reads for weight in found[name]]
            found.update((name, behind if layer.reads else [name]) for name in layer.writes)
    return found


def _bits(dtype: str) -> int | None:
    """Return the bits of an element by its type's name; None for text and the like."""
    if dtype == "bool":
        return 8
    match = re.match(r"[a-z]+(\d+)", dtype)
    return int(match[1]) if match else None
