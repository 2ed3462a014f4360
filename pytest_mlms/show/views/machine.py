"""View of a machine: its state as an item's line has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_mlms.core.units import format_quantity

__all__ = ["GpuView", "MachineView"]


@dataclass(frozen=True)
class GpuView:
    """A GPU as its driver tells it."""

    name: str = ""
    uuid: str = ""
    driver: str | None = None
    memory: int | None = None


@dataclass(frozen=True)
class MachineView:
    """A machine, as docs/results.md has its fields."""

    host: str = ""
    system: str = ""
    kernel: str = ""
    architecture: str = ""
    cpu: Mapping[str, str | None] = field(default_factory=dict)
    cores: Mapping[str, int | None] = field(default_factory=dict)
    memory: int | None = None
    virtual_machine: bool | None = None
    governor: Any = None
    boost: bool | None = None
    load_average: tuple[float, ...] | None = None
    gpus: tuple[GpuView, ...] | None = None
    gpu_driver: str | None = None
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
