"""A machine's state in the line of an item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pytest_mlms.core.serialization import OrDefault
from pytest_mlms.core.units import format_quantity
from pytest_mlms.keep.results.strict import Bounds, Count, Taken, Text


@dataclass(frozen=True)
class GpuRecord:
    """A GPU as its driver tells it."""

    name: Text = ""
    uuid: str = ""
    driver: Text | None = None
    memory: int | None = None


@dataclass(frozen=True)
class MachineRecord:
    """A machine's state as it is read, which ``provide.host.machine`` writes."""

    host: Text = ""
    system: str = ""
    kernel: str = ""
    architecture: Text = ""
    cpu: Mapping[str, str | None] = field(default_factory=dict)
    cores: Mapping[str, int | None] = field(default_factory=dict)
    core_kinds: Annotated[Mapping[Text, tuple[Count, ...]] | None, OrDefault(None)] = None
    affinity: Annotated[tuple[Count, ...] | None, OrDefault(None)] = None
    memory: int | None = None
    virtual_machine: bool | None = None
    governor: Any = None
    boost: bool | None = None
    load_average: tuple[float, ...] | None = None
    gpus: tuple[GpuRecord, ...] | None = None
    gpu_driver: Text | None = None
    cgroup_limits: Mapping[str, float | None] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The machine in a line: host, CPU, cores, memory and GPUs."""
        parts = [self.host, self.cpu.get("model") or ""]
        cores = self.cores.get("logical")
        if cores:
            parts.append("1 core" if cores == 1 else f"{cores} cores")
        if self.memory:
            parts.append(format_quantity(self.memory, "B"))
        parts += [gpu.name for gpu in self.gpus or ()]
        if self.virtual_machine:
            parts.append("virtual machine")
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class _Cpu:
    model: Text | None = None
    microarchitecture: Text | None = None


@dataclass(frozen=True)
class _Cores:
    logical: Count | None = None
    physical: Count | None = None


@dataclass(frozen=True)
class _CgroupLimits:
    cpus: float | None = None


MACHINE: Mapping[type, Taken] = {
    MachineRecord: Taken(
        nullable="host architecture affinity cgroup_limits cpu cores core_kinds gpus memory"
        " gpu_driver",
        instead={
            "cgroup_limits": _CgroupLimits,
            "cores": _Cores,
            "cpu": _Cpu,
            "memory": Annotated[float, Bounds(ge=1, lt=2**60)],
        },
    ),
    _CgroupLimits: Taken(nullable="cpus"),
    _Cores: Taken(nullable="logical physical"),
    _Cpu: Taken(nullable="model microarchitecture"),
    GpuRecord: Taken(nullable="name driver"),
}
"""The fields that strict readers take: a machine's class and its software are made of them."""
