"""Records of a trace: its runs and their probes, its case, and its summary for results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pytest_mlms.core.serialization import omitted_if_default

__all__ = ["ProbeStatus", "TraceRun", "merge_statuses"]


@dataclass(frozen=True)
class ProbeStatus:
    """Status of one probe in one run.

    ``reason`` says why an unavailable probe could not start. ``missing`` maps each counter that an
    available probe could not read to the reason. ``fault`` is an error that happened while the
    probe was on. ``stepwise`` is set for the framework's layer profiler only: whether the framework
    runs layers one by one, so that counters can be read between them.
    """

    probe: str
    available: bool
    reason: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    stepwise: bool | None = omitted_if_default(None)


@dataclass(frozen=True)
class TraceRun:
    """One run of a trace: the calls of one level, in one process.

    ``plain_us`` and ``traced_us`` are trimmed means of the latency of a call without and with
    probes, in microseconds; ``overhead`` is their ratio minus one. ``fault`` says why the run ended
    early. ``serialised`` runs wait for every kernel launch. ``process`` is the process ID. ``void``
    says why the run does not count; it is empty for a run that does.
    """

    level: str
    calls: int = 0
    plain_us: float | None = None
    traced_us: float | None = None
    overhead: float | None = None
    probes: tuple[ProbeStatus, ...] = ()
    fault: str = ""
    serialised: bool = False
    process: int | None = omitted_if_default(None)
    void: str = omitted_if_default("")


def merge_statuses(
    earlier: Iterable[ProbeStatus], latest: Iterable[ProbeStatus]
) -> tuple[ProbeStatus, ...]:
    """Return the latest status of each probe; a fault of an earlier reply is kept."""
    faults = {status.probe: status.fault for status in earlier if status.fault}
    merged = []
    for status in latest:
        fault = status.fault or faults.get(status.probe, "")
        merged.append(replace(status, fault=fault))
    return tuple(merged)


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


@dataclass(frozen=True)
class LayerWork:
    """Operations and bytes of a layer for a whole batch, by the structure of the model.

    Both are None where the structure does not determine them. ``reads`` and ``writes`` are the
    names of the activations that it takes and gives, ``shape`` is the shape of the first one
    that it gives.
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


@dataclass(frozen=True)
class DeviceTime:
    """Microseconds of a call, as trimmed means over the calls in the run of the kernels.

    ``busy_us`` is the time in which any kernel or copy runs, on whichever stream; ``kernels_us``
    that of kernels, ``to_device_us`` and ``to_host_us`` those of copies from the host and back.
    Where kernels and copies overlap, these add up to more. ``launches`` are kernels and copies.
    """

    busy_us: float
    kernels_us: float
    to_device_us: float
    to_host_us: float
    launches: float


@dataclass(frozen=True)
class SlowLayer:
    """One of the slowest layers: microseconds of a call, and the share of all layers."""

    name: str
    type: str
    us: float
    share: float


@dataclass(frozen=True)
class TraceSummary:
    """The field ``trace`` of an item's results.

    ``levels`` are those that the user asked for. ``layers`` is the number of layers, ``layers_us``
    is the sum of their latencies, ``call_us`` is the call that they are part of, and ``coverage``
    is their share of it. All of these, and ``slowest``, the slowest layers, are of one run.
    ``layers_sha256`` is the digest of their names and types in order, None where there are none.
    ``cost`` is the static cost of the model, None where its structure is unknown. ``ambiguous``
    counts the spans whose parent is ambiguous. ``unseen`` maps each level without a span or counter
    to the reason. ``faults`` maps each level that was cut short to the reason. ``gpu`` is the time
    in which a GPU works, None where no kernel was seen.
    """

    levels: tuple[str, ...]
    runs: tuple[TraceRun, ...]
    coverage: float | None
    layers: int
    slowest: tuple[SlowLayer, ...]
    ambiguous: int
    unseen: Mapping[str, str]
    faults: Mapping[str, str]
    layers_us: float | None = None
    call_us: float | None = None
    layers_sha256: str | None = None
    cost: CostSummary | None = None
    gpu: DeviceTime | None = None

    def runs_at(self, level: str) -> list[TraceRun]:
        """Return all runs of a level, void ones too."""
        return [run for run in self.runs if run.level == level]
