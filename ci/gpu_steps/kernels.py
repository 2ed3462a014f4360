"""The device's time of calls against kernels of known length, and instances beside each other."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from gpu_steps.facts import Facts
from gpu_steps.models import batch, opened, turn
from pytest_mlms.measure.agent.load import LoadPlan
from pytest_mlms.measure.agent.predictor import Predictor

__all__ = ["known_lengths", "two_instances"]

SPIN = r"""
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}
"""
"""A kernel of one thread that ends after some nanoseconds by the GPU's own clock."""
MODEL = f'''
import time
import torch

try:
    import cupy
except ImportError:
    cupy = None
SPIN = r"""{SPIN}"""


class Model(torch.nn.Module):
    """As many kernels as the input has columns, each of 10 us for a row."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))
        self.kernel = cupy.RawKernel(SPIN, "spin") if cupy else None

    def forward(self, x):
        for _ in range(x.shape[1]):
            self.spin(x.device, 10_000 * x.shape[0])
        return self.w + 0

    def spin(self, device, nanoseconds):
        if device.type == "cpu":
            time.sleep(1e-9 * nanoseconds)
        elif self.kernel is None:  # of a length that is only roughly known
            torch.cuda._sleep(int(1.9 * nanoseconds))
        else:
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                self.kernel((1,), (1,), (cupy.uint64(nanoseconds),))
'''
ROW = 10.0  # microseconds
LENGTHS = (2, 10, 100, 105, 1000)  # rows
LAUNCHES = (10, 100)  # of kernels of one row: as long as a slow host needs to launch one
CALLS = 30
MOST = 0.01
QUERIES = 200  # of a kernel of 1 ms
MOST_BESIDE = 0.6  # of the time of one instance, of kernels that leave the GPU nearly empty


class Times(NamedTuple):
    """Medians of a call in microseconds: by CUDA's events, and by the clock on the wall.

    ``ahead`` is that by events where all was launched before the first of them, None where that
    can't be had.
    """

    device: float
    wall: float
    ahead: float | None


def known_lengths(facts: Facts, device: str) -> None:
    """Hold the device's time of kernels against their length; tell that of many short ones."""
    with opened(MODEL, device) as predictor:
        is_exact = importlib.util.find_spec("cupy") is not None
        measure(facts, lambda rows, columns: time_calls(predictor, rows, columns), is_exact)


def measure(facts: Facts, time_of: Callable[[int, int], Times], exact: bool) -> None:
    """Tell the times of kernels of each length; without ``exact`` ones nothing can be held."""
    found = {rows: time_of(rows, 1) for rows in LENGTHS}
    for rows, times in found.items():
        facts.tell(length_us=ROW * rows, **times._asdict())
    _tell(facts, "a kernel of 1 ms", found[100], 100, exact)
    if exact:
        longer = found[105].device / found[100].device / 1.05 - 1
        facts.hold_share("a kernel that is 5 % longer", longer, MOST)
    for columns in LAUNCHES:
        times = time_of(1, columns)
        facts.tell(launches=columns, **times._asdict())
        _tell(facts, f"{columns} kernels of {ROW:g} µs", times, columns)


def _tell(facts: Facts, what: str, times: Times, rows: int, held: bool = False) -> None:
    """Tell both times by events beside the truth; hold that of what was launched ahead."""
    facts.figure(f"{what}, as turns time it", f"{times.device / (ROW * rows) - 1:+.2%}")
    ahead = (times.ahead or times.device) / (ROW * rows) - 1
    if held:
        facts.hold_share(f"{what}, launched ahead", ahead, MOST)
    else:
        facts.figure(f"{what}, launched ahead", f"{ahead:+.2%}" if times.ahead else "can't be")


def time_calls(predictor: Predictor, rows: int, columns: int) -> Times:
    """Return the times of a call as upgrades take them, on an input of this shape."""
    told = turn(predictor, batch(rows, columns), CALLS)
    times = told.times
    wall = [end - start for start, end in zip(times["start"], times["end"], strict=True)]
    ahead = told.event_times[1] if told.event_times else None
    return Times(_median_us(times["device"]), _median_us(wall), ahead and 1e6 * ahead)


def two_instances(facts: Facts, device: str) -> None:
    """Hold the time of queries by two instances, each on its stream, against that by one."""
    with opened(MODEL, device) as predictor:
        one, two = (serve(predictor, count) for count in (1, 2))
    facts.tell(queries=QUERIES, one=one, two=two)
    bound = f"≤ {MOST_BESIDE:g} times"
    facts.hold("two instances, by one", f"{two / one:.2f} times", bound, two <= MOST_BESIDE * one)


def serve(predictor: Predictor, instances: int) -> float:
    """Return the seconds in which so many instances serve queries that are all there."""
    waiting = np.zeros(QUERIES, np.int64)
    plan = LoadPlan(waiting, longest=20, scheduled=waiting, instances=instances)
    return float(predictor.load_run([batch(100, 1)], plan).done.max() / 1e9)


def _median_us(seconds: Iterable[float]) -> float:
    return 1e6 * statistics.median(map(float, seconds))
