"""How requests arrive, as MLPerf Inference defines it: one loop a scenario, over calls that are
already bound.

A loop takes ``calls``, functions without arguments that are used in turn, a Stop rule, and Samples
to fill. It stores raw times and computes nothing from them. Inside a timed region there is the call
and nothing else.
"""

import time
from array import array
from typing import NamedTuple

from .process import QueueWait, cpu_time

CAPACITY = 10000  # samples of one run; more add little, since processes are the replicates


class Stop(NamedTuple):
    """When a loop ends: once ``seconds`` and ``least`` calls are both met, after ``longest``
    seconds, or when full.
    """

    seconds: float
    least: int
    longest: float


class Samples:
    """Times in seconds, in buffers made once, so that the loop allocates nothing and memory
    readings hold still.

    ``start`` and ``end`` of each call, on the monotonic clock; ``wait`` (in the run queue, the
    calling thread) and ``cpu`` (all threads) as they stood when ``at`` calls were done: before the
    first, after the last, and in between as the scenario says; ``outputs``, the last of each of the
    calls.
    """

    def __init__(self):
        self.start, self.end, self.wait, self.cpu, self.at = (
            array("d", bytes(8 * CAPACITY + 8)) for _ in range(5)
        )
        self.count = self.readings = 0
        self.outputs = []

    def arrays(self):
        """Return the filled part of each buffer by name."""
        sizes = {"start": self.count, "end": self.count}
        sizes.update(wait=self.readings, cpu=self.readings, at=self.readings)
        return [(name, getattr(self, name)[:size]) for name, size in sizes.items()]


def single_stream(calls, stop, samples):
    """Send the next request when the last one is done; counters are read after each call of 0.1 ms
    or longer.

    After shorter calls they are read every 0.1 ms: the two system calls would slow down the next
    call by a percent.
    """
    _loop(calls, stop, samples, between_readings=1e-4)


def offline(calls, stop, samples):
    """Send all requests at once.

    The next begins as the last ends, and counters are read at both ends only.
    """
    _loop(calls, stop, samples, between_readings=float("inf"))


def seconds(values):
    """Return numbers as a buffer of the same sort as the samples are."""
    return array("d", values)


def turn(calls, first, skip, count, samples):
    """Make ``skip`` calls that aren't timed, since another process had the core and its caches;
    then time ``count``.

    The calls are used in turn from number ``first`` on.
    """
    calls = calls[first:] + calls[:first]
    for index in range(skip):
        calls[index % len(calls)]()
    single_stream(calls, Stop(0, count, float("inf")), samples)


def _loop(calls, stop, samples, between_readings, clock=time.perf_counter):
    start, end, wait, cpu, at = samples.start, samples.end, samples.wait, samples.cpu, samples.at
    samples.outputs = outputs = [None] * len(calls)
    queue, turn, count, readings = QueueWait(), len(calls), 0, 1
    wait[0], cpu[0], at[0] = queue.read(), cpu_time(), 0
    after = clock()
    seconds, least, over, reading = (
        stop.seconds,
        stop.least,
        after + stop.longest,
        after + between_readings,
    )
    while not count or (
        count < CAPACITY and after < over and (after - start[0] < seconds or count < least)
    ):
        call = calls[count % turn]
        before = clock()
        output = call()
        after = clock()
        start[count], end[count] = before, after
        outputs[count % turn] = output
        count += 1
        if after >= reading:
            wait[readings], cpu[readings], at[readings] = queue.read(), cpu_time(), count
            readings += 1
            reading = after + between_readings
    if at[readings - 1] != count:
        wait[readings], cpu[readings], at[readings] = queue.read(), cpu_time(), count
        readings += 1
    queue.close()
    samples.count, samples.readings = count, readings


SCENARIOS = {"single_stream": single_stream, "offline": offline}
