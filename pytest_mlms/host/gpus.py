"""The GPUs that this process may use, listed by nvidia-smi in the order of CUDA."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache
from typing import NamedTuple

from mlms_predictors._run import gpus as cuda

__all__ = ["Gpu", "visible_gpus"]

_QUERY = ("uuid", "name", "memory.total", "driver_version")
_SECONDS = 20
_MIB = 1 << 20


class Gpu(NamedTuple):
    """A GPU: ``memory`` is in bytes, 0 where the driver doesn't tell it."""

    uuid: str
    name: str
    memory: int
    driver: str


@lru_cache(maxsize=1)
def visible_gpus() -> list[Gpu]:
    """Return the GPUs that are cuda:0, cuda:1, … in this process.

    CUDA_VISIBLE_DEVICES selects them. The list is empty where nvidia-smi gives no answer.
    """
    gpus = _parse(_ask())
    uuids = [gpu.uuid for gpu in gpus]
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [gpus[position] for position in cuda.visible_gpus(uuids, chosen)]


def _ask() -> str:
    """Return the answer of nvidia-smi, a line a GPU, "" where there is none."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ""
    query = ",".join(_QUERY)
    try:
        done = subprocess.run(  # a status other than 0 may be a warning, such as 14
            [command, f"--query-gpu={query}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _parse(text: str) -> list[Gpu]:
    gpus = []
    for line in text.splitlines():
        fields = line.split(", ")
        if len(fields) != len(_QUERY) or not fields[0].startswith("GPU-"):
            continue  # a warning, such as that of a damaged infoROM
        uuid, name, memory, driver = fields
        mebibytes = int(memory) if memory.isdigit() else 0
        gpus.append(Gpu(uuid, name, mebibytes * _MIB, driver))
    return gpus
