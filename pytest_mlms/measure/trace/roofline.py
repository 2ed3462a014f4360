"""Rooflines of layers and models: the performance that a device allows for their work.

Williams, Waterman and Patterson 2009 (https://doi.org/10.1145/1498765.1498785): the attainable
operations per second are the lesser of the peak, and of the peak bandwidth times the operations per
byte. Operations and bytes are static counts (``pytest_mlms.measure.structure.cost``): only
convolutions and matrix products have operations, and caches are not modelled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_mlms.measure.structure.cost import LayerCost
from pytest_mlms.measure.trace.metadata import LayerWork, Peaks

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
    """Return the work of a layer; its bytes are those of inputs, outputs and weights."""
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
