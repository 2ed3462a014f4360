"""Facts of a machine that matter to strangers, without its name."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_mlms.core.units import format_quantity
from pytest_mlms.keep.results.machine_record import MachineRecord


def machine_facts(machine: MachineRecord) -> list[tuple[str, str]]:
    """Return what is known of a machine: CPU, cores, memory, system, GPUs and their driver."""
    return [(name, value) for name, value in _facts(machine) if value]


def _facts(machine: MachineRecord) -> Iterator[tuple[str, str]]:
    cpu = machine.cpu
    model = ", ".join(filter(None, (cpu.get("model"), cpu.get("microarchitecture"))))
    yield "CPU", model
    yield "cores", _cores(machine)
    yield "memory", format_quantity(machine.memory, "B") if machine.memory else ""
    virtual = ", virtual machine" if machine.virtual_machine else ""
    system = ", ".join(filter(None, (machine.system, machine.architecture)))
    yield "system", f"{system}{virtual}" if system else ""
    for gpu in machine.gpus or ():
        yield "GPU", gpu.name
    drivers = [gpu.driver for gpu in machine.gpus or () if gpu.driver]
    yield "GPU driver", machine.gpu_driver or next(iter(drivers), "")


def _cores(machine: MachineRecord) -> str:
    physical = machine.cores.get("physical")
    logical = machine.cores.get("logical")
    parts = []
    if physical:
        parts.append(f"{physical} physical")
    if logical:
        parts.append(f"{logical} logical")
    limit = machine.cgroup_limits.get("cpus")
    if limit:
        parts.append(f"{limit:g} allowed")
    return ", ".join(parts)
