"""A stub of NVIDIA's driver: real pynvml, frameworks and agents run above it, without a GPU.

``libnvidia-ml.so.1`` and ``libcuda.so.1`` are compiled once a process of pytest, and answer what a
file says, which they read at each call. The fixture ``driver`` has this process, and all processes
that it starts, find them; ``driver.says(H200)`` is what they answer from then on::

    def test_a_hot_gpu_is_named(driver: Driver) -> None:
        driver.says(H200, "reasons 0x40")             # further lines of the last GPU
        assert ...                                    # import pynvml; or run pytest, or an agent

The file has a line for each fact, and the last one of a kind counts. What has no line is "Not
Supported", and ``!4`` in the place of a value is NVML's error 4. A number ``START+RATE@PERIOD`` is
a counter that rises ``RATE`` a second, in steps of ``PERIOD`` seconds (or smoothly, without it).

=============================  ===================================================================
driver 580.65.06               before the first GPU, as ``init !4``, and of libcuda ``cuda 2``
                               (devices) and ``l2 62914560`` (bytes, of each)
gpu UUID                       begins a GPU
mig UUID                       begins a slice of it; ``mig -`` is a place without one
name NVIDIA H200
memory TOTAL USED              bytes
clock.1 1980                   MHz, by NVML_CLOCK_…: 1 SM, 2 memory; ``most_clock.1``
temperature.0 47
power 412300                   mW, the average; ``power_limit``
energy 0+412300@0.1            mJ
field.186 430000               a field value by NVML_FI_…: 186 power now, 74 … 81, 269 … 271 (ns)
reasons 0x4                    bits of clocks event reasons
violation.0 1000               ns by NVML_PERF_POLICY_…: 0 power, 1 thermal
utilization 97 41              %: GPU, memory
process PID BYTES              one of several; PID may be ``self``, BYTES ``?`` for not available
processes !4                   the list is refused
mig_mode 1                     a GPU in this mode has slices
instance 3                     of a slice: its GPU instance; ``compute_instance``
gpm 1, metric.2 0+81.5         GPM is supported; a counter whose rate is the metric 2
=============================  ===================================================================
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mlms_predictors._run import gpus

__all__ = ["H200", "SLICED", "Driver", "compile_driver", "compile_library"]

HEAD = "driver 580.65.06\ncuda 1\nl2 62914560\n"
H200 = f"""{HEAD}
gpu GPU-aa00
name NVIDIA H200
memory 150754820096 1073741824
clock.1 1980
clock.2 2619
temperature.0 47
power 412300
field.186 430000
power_limit 700000
energy 0+412300@0.1
reasons 0
utilization 0 0
"""
"""A GPU, at work but for its utilization."""

SLICED = f"""{H200}
mig_mode 1
utilization !3
process 201 ?
process 202 ?
mig MIG-11
name NVIDIA H200 MIG 1g.18gb
memory 17179869184 33554432
instance 7
process 201 4096
mig -
mig MIG-22
name NVIDIA H200 MIG 3g.71gb
memory 75161927680 33554432
instance 2
compute_instance 1
process 202 8192
"""
"""A GPU with two slices, by NVML's places 0 and 2. What a slice doesn't tell is its GPU's."""

_LIBRARIES = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1"}


class Driver:
    """The stub in use: ``says`` changes its answers, ``users`` counts who opened NVML here."""

    def __init__(self, libraries: Path, script: Path) -> None:
        self.script = script
        self.path = str(libraries / "libnvidia-ml.so.1")
        self.nvml: Any = ctypes.CDLL(self.path)
        self.environment = {
            "LD_LIBRARY_PATH": os.pathsep.join(
                [str(libraries), os.environ.get("LD_LIBRARY_PATH", "")]
            ),
            "MLMS_STUB_GPUS": str(script),
        }

    def says(self, *lines: str) -> None:
        """Answer with these lines from now on."""
        new = self.script.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.script)

    @property
    def users(self) -> int:
        """The open users of NVML in this process."""
        return int(self.nvml.stub_users())

    def use_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have this process, and those that it starts, find the stub."""
        pynvml = pytest.importorskip("pynvml")
        while self.users:  # of an earlier test
            self.nvml.nvmlShutdown()
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        # The loader read LD_LIBRARY_PATH when this process began.
        monkeypatch.setattr(gpus, "NVML", self.path)
        monkeypatch.setattr(pynvml, "nvmlLib", self.nvml)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})


def compile_driver(folder: Path) -> Path:
    """Compile the libraries into a folder; skip where there is no compiler."""
    for source, library in _LIBRARIES.items():
        compile_library(Path(__file__).with_name(f"{source}.c"), folder / library)
    return folder


def compile_library(source: Path, library: Path) -> None:
    """Compile a shared library; skip where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for stubs of NVIDIA's libraries")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
