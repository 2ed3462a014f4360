"""Metadata of a trace: the case that was traced, and the limits of its device."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_mlms.core.serialization import omitted_if_default
from pytest_mlms.measure.structure.summary import CostSummary


@dataclass(frozen=True)
class LayerWork:
    """Operations and bytes of a layer for a whole batch, by the structure of the model.

    Both are None where the structure does not determine them. ``reads`` and ``writes`` are the
    names of the activations that it takes and gives, ``shape`` is that of the first one that it
    gives.
    """

    name: str
    type: str
    flops: int | None
    bytes: int | None
    reads: tuple[str, ...] = omitted_if_default(())
    writes: tuple[str, ...] = omitted_if_default(())
    shape: tuple[int, ...] | None = omitted_if_default(None)


@dataclass(frozen=True)
class Peaks:
    """Measured limits of a device: operations and bytes per second, and how they were measured."""

    flops: float
    bytes: float
    how: str = ""


@dataclass(frozen=True)
class TraceMetadata:
    """The case of a trace, and facts that the analyses need beside spans and counters.

    ``levels`` are those that the user asked for. ``static`` has the work of each layer, and
    ``cost`` the sums of the model.
    ``wall_offset_ns`` is the wall clock minus the monotonic clock when the trace was made, in
    nanoseconds. ``peaks_unavailable`` and ``structure_unavailable`` say why the peaks of the
    device, or the structure of the model, are unknown.
    """

    manifest: str = ""
    case: str = ""
    batch_size: int = 1
    framework: str = ""
    device: str = ""
    kind: str = "trace"
    static: tuple[LayerWork, ...] = ()
    wall_offset_ns: int = 0
    levels: tuple[str, ...] = ()
    cost: CostSummary | None = omitted_if_default(None)
    peaks: Peaks | None = omitted_if_default(None)
    peaks_unavailable: str = omitted_if_default("")
    structure_unavailable: str = omitted_if_default("")
