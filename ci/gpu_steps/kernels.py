"""The device's time of calls, as upgrades are judged by it, against kernels of known length."""

from __future__ import annotations

import importlib.util
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpu_paths
import numpy as np

from gpu_steps.facts import Facts
from gpu_steps.torch_work import SPIN

__all__ = ["known_lengths"]

MODEL = f'''
import torch

try:
    import cupy
except ImportError:
    cupy = None
SPIN = r"""{SPIN}"""


class Spin(torch.nn.Module):
    """As many kernels as the input has columns, each of 10 us for a row."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))
        self.kernel = cupy.RawKernel(SPIN, "spin") if cupy else None

    def forward(self, x):
        for _ in range(x.shape[1]):
            self.spin(10_000 * x.shape[0])
        return self.w + 0

    def spin(self, nanoseconds):
        if self.kernel is None:  # of a length that is only roughly known
            torch.cuda._sleep(int(1.9 * nanoseconds))
            return
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            self.kernel((1,), (1,), (cupy.uint64(nanoseconds),))
'''
OPTIONS = {"class": "Spin", "inputs": "x float32[?,?]", "outputs": "y"}
ROW = 10.0  # microseconds
LENGTHS = (2, 10, 100, 105, 1000)  # rows
LAUNCHES = (10, 100)  # of kernels of one row: as long as a slow host needs to launch one
MOST = 0.01


class Times(NamedTuple):
    """Medians of a call, in microseconds: on the device, and by the clock on the wall."""

    device: float
    wall: float


def known_lengths(facts: Facts, device: str) -> None:
    """Hold the device's time of kernels against their length; tell that of many short ones."""
    with tempfile.TemporaryDirectory() as name:
        agent = gpu_paths.Agent("pytorch", Path(name, "log"))
        try:
            load(agent, Path(name), device)
            measure(facts, lambda rows, columns: time_calls(agent, rows, columns), is_exact())
        finally:
            agent.close()


def measure(facts: Facts, time_of: Callable[[int, int], Times], exact: bool) -> None:
    """Tell the times of kernels of each length; without ``exact`` ones nothing can be held."""
    found = {rows: time_of(rows, 1) for rows in LENGTHS}
    for rows, times in found.items():
        facts.tell(length_us=ROW * rows, device_us=times.device, wall_us=times.wall)
    added = found[100].device / (ROW * 100) - 1
    if exact:
        facts.hold_share("device time of a kernel of 1 ms", added, MOST)
        longer = found[105].device / found[100].device / 1.05 - 1
        facts.hold_share("a kernel that is 5 % longer", longer, MOST)
    else:
        facts.figure("device time of a kernel of about 1 ms (no CuPy)", f"{added:+.2%}")
    for columns in LAUNCHES:
        times = time_of(1, columns)
        share = times.device / (ROW * columns) - 1
        facts.tell(launches=columns, device_us=times.device, wall_us=times.wall)
        facts.figure(f"device time of {columns} kernels of {ROW:g} µs", f"{share:+.1%}")


def is_exact() -> bool:
    """Return whether kernels have a known length: CuPy compiles them."""
    return importlib.util.find_spec("cupy") is not None


def load(agent: Any, folder: Path, device: str) -> None:
    """Load the model that spins."""
    import torch

    (folder / "spin.py").write_text(MODEL)
    torch.save({"w": torch.zeros(1)}, folder / "state.pt")
    agent.ask("hello")
    files = {"graph": str(folder / "spin.py"), "weights": str(folder / "state.pt")}
    request = {"files": files, "device": device, "threads": None, "options": OPTIONS}
    agent.ask("load", {**request, "allow_code": True})


def time_calls(agent: Any, rows: int, columns: int) -> Times:
    """Return the times of a call on an input of this shape."""
    feed = [("x", np.zeros((rows, columns), np.float32))]
    stop = {"seconds": 0.3, "least": 30, "longest": 5}
    agent.ask("run", {"scenario": "single_stream", "batches": 1, "stop": stop}, feed)
    arrays = agent.ask("run", {"scenario": "single_stream", "stop": stop}).arrays
    wall = arrays["time:end"] - arrays["time:start"]
    return Times(_median_us(arrays["time:device"]), _median_us(wall))


def _median_us(seconds: Any) -> float:
    return 1e6 * statistics.median(map(float, seconds))
