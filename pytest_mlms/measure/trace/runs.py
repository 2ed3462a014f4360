"""Records of the runs of a trace and of the probes that observed them."""

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
