"""Classes of machines whose times may be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_ABOVE = 1.25
"""Memory counts as a power of two up to a quarter above it.

A kernel shows 1 to 8 % less than what is built in. This border is far from all usual sizes, 2ⁿ and
1.5·2ⁿ GiB or GB, so that none of them changes its class with the next kernel.
"""


def machine_class(machine: Mapping[str, Any], device: str | None = None) -> str:
    """Return the class of a machine from its state in an item's line.

    It has what makes times incomparable: the model of the CPU and its microarchitecture, which a
    virtual machine may not show in the model, the cores that may be used of those that there are,
    whether these are threads of fewer physical ones, the memory to a power of two, whether the
    machine is virtual, and the GPUs. With a ``device``, GPUs count only where it is one, and its
    number where they are unlike. Everything
    that may change from run to run is left out: frequencies, load, stolen time, the governor, the
    kernel, the number of GPUs; and so is the name of the host.
    """
    parts = [
        _cpu(machine),
        _cores(machine),
        f"{_power_of_two(machine.get('memory'))} GiB",
    ]
    if machine.get("virtual_machine"):
        parts.append("virtual")
    if device is None or device_kind(device) != "cpu":
        parts += _gpus(machine, device)
    return ", ".join(parts)


def device_kind(device: str) -> str:
    """Return the device without its number: of several like GPUs any may be used."""
    return device.partition(":")[0]


def _cpu(machine: Mapping[str, Any]) -> str:
    cpu = machine.get("cpu") or {}
    model = cpu.get("model") or machine.get("architecture")
    text = " ".join(str(model).split())
    microarchitecture = cpu.get("microarchitecture")
    if not microarchitecture or microarchitecture == text:
        return text
    return f"{text} ({microarchitecture})"


def _cores(machine: Mapping[str, Any]) -> str:
    """Return the logical cores; also those that may be used, and the physical ones, if fewer."""
    cores = machine.get("cores") or {}
    logical = cores.get("logical")
    text = f"{logical} cores"
    if not logical:
        return text
    usable = _usable_cores(machine, logical)
    if usable < logical:
        text = f"{usable:g} of {text}"
    physical = cores.get("physical")
    if physical and physical != logical:
        text += f" ({physical} physical)"
    return text


def _usable_cores(machine: Mapping[str, Any], logical: int) -> float:
    """Return how many of the logical cores affinity and control groups leave."""
    usable: float = logical
    affinity = machine.get("affinity")
    if affinity:
        usable = min(usable, len(affinity))
    limits = machine.get("cgroup_limits") or {}
    quota = limits.get("cpus")
    if quota:
        usable = min(usable, quota)
    return usable


def _gpus(machine: Mapping[str, Any], device: str | None) -> list[str]:
    """Return the kinds of GPUs; of unlike ones also which of them the device is."""
    names = sorted({gpu["name"] for gpu in machine.get("gpus") or [] if gpu.get("name")})
    if device is None:
        return names
    if not names:
        return [f"unknown {device_kind(device)}"]
    return [*names, f"number {device.partition(':')[2] or 0}"] if len(names) > 1 else names


def _power_of_two(size: float | None) -> str:
    """Return a size in bytes as a power of two of GiB; unknown as "?"."""
    if not size:
        return "?"
    gibibytes = size / 2**30
    power = math.ceil(math.log2(gibibytes / _ABOVE))
    return f"{2.0**power:g}"
