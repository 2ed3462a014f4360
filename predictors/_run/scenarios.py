"""How requests arrive, as MLPerf Inference defines it: one loop a scenario, over calls that are already bound.

A loop takes ``calls``, functions without arguments that are used in turn, a Stop rule, and Samples to fill. It
stores raw times and computes nothing from them. Inside a timed region there is the call and nothing else.
"""

import time
from array import array
from typing import NamedTuple

from .process import QueueWait, cpu_time

CAPACITY = 10000  # samples of one run; more add little, since processes are the replicates


class Stop(NamedTuple):
    """When a loop ends: once ``seconds`` and ``least`` calls are both met, after ``longest`` seconds, or when full."""

    seconds: float
    least: int
    longest: float


class Samples:
    """Times in seconds, in buffers made once, so that the loop allocates nothing and memory readings hold still.

    ``start`` and ``end`` of each call, on the monotonic clock; ``wait`` (in the run queue, the calling thread) and
    ``cpu`` (all threads) as they stood before the first call and at each later reading; ``outputs``, the last of
    each of the calls.
    """

    def __init__(self):
        self.start, self.end, self.wait, self.cpu = (array("d", bytes(8 * CAPACITY + 8)) for _ in range(4))
        self.count = self.readings = 0
        self.outputs = []

    def arrays(self):
        """Return the filled part of each buffer by name."""
        sizes = {"start": self.count, "end": self.count, "wait": self.readings, "cpu": self.readings}
        return [(name, getattr(self, name)[:size]) for name, size in sizes.items()]


def single_stream(calls, stop, samples, clock=time.perf_counter):
    """Send the next request when the last one is done; counters are read between requests."""
    start, end, wait, cpu = samples.start, samples.end, samples.wait, samples.cpu
    samples.outputs = outputs = [None] * len(calls)
    queue, turn, count = QueueWait(), len(calls), 0
    read = queue.read
    wait[0], cpu[0] = read(), cpu_time()
    begin = clock()
    enough, over = begin + stop.seconds, begin + stop.longest
    while count < CAPACITY:
        call = calls[count % turn]
        before = clock()
        output = call()
        after = clock()
        start[count], end[count] = before, after
        outputs[count % turn] = output
        count += 1
        wait[count], cpu[count] = read(), cpu_time()
        if after >= over or (after >= enough and count >= stop.least):
            break
    queue.close()
    samples.count, samples.readings = count, count + 1


def offline(calls, stop, samples, clock=time.perf_counter):
    """Send all requests at once, so the next begins as the last ends; counters are read at both ends only."""
    start, end, wait, cpu = samples.start, samples.end, samples.wait, samples.cpu
    samples.outputs = outputs = [None] * len(calls)
    queue, turn, count = QueueWait(), len(calls), 0
    wait[0], cpu[0] = queue.read(), cpu_time()
    before = clock()
    enough, over = before + stop.seconds, before + stop.longest
    while count < CAPACITY:
        output = calls[count % turn]()
        after = clock()
        start[count], end[count] = before, after
        outputs[count % turn] = output
        count += 1
        before = after
        if after >= over or (after >= enough and count >= stop.least):
            break
    wait[1], cpu[1] = queue.read(), cpu_time()
    queue.close()
    samples.count, samples.readings = count, 2


SCENARIOS = {"single_stream": single_stream, "offline": offline}
