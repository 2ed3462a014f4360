"""The layers of a model that became slower, as the frameworks' profilers tell them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_mlms.core.arrays import Arrays
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.decide.upgrade.layer_diff import changed_layers
from pytest_mlms.explain.reduce.network import Network
from pytest_mlms.explain.reduce.sides import Sides

_PROFILED = 10  # calls


def slower_layers(sides: Sides, model: Path, inputs: Arrays) -> list[str]:
    """Return the layers that take longer on the new side, the largest change first.

    None where a framework has no profiler.
    """
    try:
        old, new = (side.load(model).profile(inputs, _PROFILED) for side in sides)
    except MlmsError:
        return []
    changes = changed_layers(old, new)
    return [layer.name for layer in changes if layer.type and layer.change > 0]


def slower_nodes(network: Network, layers: Sequence[str]) -> list[int]:
    """Return the nodes of layers, which a framework may have fused and renamed.

    A fused layer has the name of one of its nodes in its own, or that of a tensor they write.
    """
    found: dict[int, None] = {}
    for layer in layers:
        number = _node_of(network, layer)
        if number is not None:
            found[number] = None
    return list(found)


def _node_of(network: Network, layer: str) -> int | None:
    """Return the node whose name, or whose tensor's name, is the longest in a layer's name."""
    best: tuple[int, int] | None = None
    for number, node in enumerate(network.nodes):
        for name in (node.name, *node.writes):
            if name == layer:
                return number
            if name in layer and (best is None or len(name) > best[0]):
                best = (len(name), number)
    return None if best is None else best[1]
