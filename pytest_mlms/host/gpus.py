"""The GPUs that this process may use, as nvidia-smi tells.

Cuda:N is the Nth of CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

__all__ = ["Gpu", "visible", "visible_gpus"]

_QUERY = ("uuid", "name", "memory.total", "driver_version")
_SECONDS = 20


class Gpu(NamedTuple):
    """A GPU: ``memory`` is bytes."""

    uuid: str
    name: str
    memory: int
    driver: str


@lru_cache(maxsize=1)
def visible_gpus() -> list[Gpu]:
    """Return the GPUs that cuda:0, cuda:1, … are in this process, none where nvidia-smi can't tell."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    asked = [command, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return visible(_parse(done.stdout), os.environ.get("CUDA_VISIBLE_DEVICES"))


def visible(gpus: Sequence[Gpu], chosen: str | None) -> list[Gpu]:
    """Return those that CUDA shows for a value of CUDA_VISIBLE_DEVICES: indices or beginnings of
    UUIDs, up to the first that names none (CUDA C++ Programming Guide, environment variables).
    """
    if chosen is None:
        return list(gpus)
    shown: list[Gpu] = []
    for name in chosen.split(","):
        index = int(name) if name.strip().isdigit() else -1
        named = [
            gpu for number, gpu in enumerate(gpus) if number == index or _is_uuid(gpu, name.strip())
        ]
        if len(named) != 1:
            break
        shown += named
    return shown


def _is_uuid(gpu: Gpu, name: str) -> bool:
    return name.startswith("GPU-") and gpu.uuid.startswith(name)


def _parse(text: str) -> list[Gpu]:
    gpus = []
    for line in text.splitlines():
        uuid, name, memory, driver = (cell.strip() for cell in line.split(","))
        gpus.append(Gpu(uuid, name, int(memory) << 20 if memory.isdigit() else 0, driver))
    return gpus
