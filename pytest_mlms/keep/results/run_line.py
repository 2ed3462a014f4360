"""The lines of results.jsonl that are of no item, and a machine's state in those of items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pytest_mlms.core.serialization import OrDefault
from pytest_mlms.core.units import format_quantity
from pytest_mlms.keep.results.strict import Bounds, Count, Name, Taken, Text


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


FORMAT = 1
"""The format of the lines: raised when a field changes its meaning, not when one is added."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The head of each line: format, name of the run, time (ISO 8601, UTC), its type."""

    format: Annotated[int, OrDefault(1)] = 1
    run: Name = ""
    time: str = ""
    type: Annotated[Name, OrDefault("")] = ""


@dataclass(frozen=True)
class GitRecord:
    """A commit, whether tracked files differ from it, and its branch; None where git can't say."""

    sha: Text = ""
    dirty: bool | None = None
    branch: Text | None = None


@dataclass(frozen=True)
class JobRecord:
    """A job of a CI service, the address of its page, and what started it, if that is known."""

    service: str = ""
    url: Text | None = None
    event: Text | None = None


@dataclass(frozen=True)
class Session:
    """A session that began: when, how, by what, and where it came from."""

    began: Annotated[str, OrDefault("")] = ""
    command: Annotated[tuple[str, ...], OrDefault(())] = ()
    python: Annotated[str, OrDefault("")] = ""
    plugin: Annotated[Text, OrDefault("")] = ""
    git: Annotated[GitRecord | None, OrDefault(None)] = None
    ci: Annotated[JobRecord | None, OrDefault(None)] = None


@dataclass(frozen=True, kw_only=True)
class RunRecord(Session, Head):
    """The line of a session that began."""


@dataclass(frozen=True, kw_only=True)
class EndRecord(Head):
    """The line of a session that ended, with pytest's exit status."""

    exit_status: Count


@dataclass(frozen=True, kw_only=True)
class HeadOfItem(Head):
    """The head of the line of an item, and of that of its tear-down if it failed."""

    nodeid: Text
    repetition: Count = 1


def format_problem(line: Mapping[str, Any]) -> str:
    """Return why a line can't be read, whose fields have other meanings by then; "" if it can."""
    version = line.get("format")
    if isinstance(version, int) and version > FORMAT:
        return f"it has format {version}, this version reads {FORMAT}; upgrade it"
    return ""
