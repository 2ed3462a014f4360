"""The scenarios: a loop for each over calls that are bound, with one call in flight.

``single_stream`` is that of MLPerf Inference. ``offline`` is not: MLPerf sends all samples as one
query, which the system may reorder, batch and overlap.

A loop takes ``calls``, functions without arguments that are used in turn, a Stop rule, and Samples
to fill. It stores raw times and computes nothing from them. Inside a timed region there is the call
and nothing else.
"""

import random
import time
from array import array
from typing import NamedTuple

from .process import QueueWait, cpu_time
from .repeats import MOST_BYTES, size_of

CAPACITY = 10000  # samples of one run; more add little, since processes are the replicates
_BETWEEN_READINGS = 5e-4  # seconds
_MOST_KEPT = 64  # outputs of a turn, if they are small


class Stop(NamedTuple):
    """The end of a loop: once both ``seconds`` and ``least`` calls are reached.

    It also ends after ``longest`` seconds, and when the samples are full.
    """

    seconds: float
    least: int
    longest: float


class TurnRequest(NamedTuple):
    """A few calls: number ``first`` of the bound calls comes first, ``timed`` calls are timed.

    ``skip`` calls before them are not timed, since another process had the core and its caches. The
    first ``cycle`` of the bound calls take turns; any other is called by itself.
    """

    first: int
    skip: int
    timed: int
    cycle: int

    def is_single(self, calls):
        """Return whether the turn is of one call by itself."""
        return self.cycle <= self.first < len(calls)

    def ordered(self, calls):
        """Return the calls in the order of this turn."""
        if self.is_single(calls):
            return [calls[self.first]]
        first = self.first % self.cycle
        return calls[first : self.cycle] + calls[:first]


class Samples:
    """Times in seconds, in buffers that are made once.

    So the loop allocates nothing, and readings of memory stay comparable. ``start`` and ``end`` are
    those of each call, on the clock of time.perf_counter. ``wait`` (of the calling thread for a
    core, see QueueWait) and ``cpu`` (of all threads) are readings of counters after ``at`` calls:
    before the first, after the last, and in between as the scenario says. ``outputs``
    are the last ones of the first call and of the others, or in turns those of ``kept`` calls
    beside those of the others, from the first call on where a turn ``holds_first``; what is held
    counts as memory.
    """

    def __init__(self):
        self.start = _buffer()
        self.end = _buffer()
        self.wait = _buffer()
        self.cpu = _buffer()
        self.at = _buffer()
        self.count = 0
        self.readings = 0
        self.holds_first = False
        self._random = random.Random(1)  # both sides of an upgrade hold those of the same calls
        self.clear()

    def clear(self):
        """Hold no outputs any more; those that follow may be of another size."""
        self.outputs = []
        self.kept = _MOST_KEPT
        self._held = []

    def slots(self, calls):
        """Return the place in ``outputs`` for what each of so many calls returns."""
        self.outputs = [None] * min(2, calls)
        return [min(call, 1) for call in range(calls)]

    def slots_of_turn(self, calls, timed):
        """Return the place in ``outputs`` for what each call returns, ``timed`` of which are made.

        In a turn what is there stays until a call replaces it. If all were freed before, their
        memory would go back to the system, and each turn's first calls wait for its pages. Which
        calls have places of their own is drawn for each turn, as turns may all begin with the same.
        """
        made = min(timed, calls)
        kept = min(self.kept, made)
        begin = 0 if self.holds_first else self._random.randrange(made)
        found = [min((call - begin) % made, kept) for call in range(calls)]
        self._held = [slot if slot < kept else None for slot in found[:made]]
        del self.outputs[self.kept + 1 :]
        self.outputs += [None] * (kept + 1 - len(self.outputs))
        return found

    def of_turn(self, calls):
        """Return the outputs of a turn over so many calls; None for those that aren't held."""
        found = [None if slot is None else self.outputs[slot] for slot in self._held]
        size = max([1] + [size_of(output) for output in found if output is not None])
        self.kept = max(1, min(self.kept, MOST_BYTES // size))
        return found + [None] * (calls - len(found))

    def arrays(self):
        """Return the filled part of each buffer, with its name."""
        return [
            ("start", self.start[: self.count]),
            ("end", self.end[: self.count]),
            ("wait", self.wait[: self.readings]),
            ("cpu", self.cpu[: self.readings]),
            ("at", self.at[: self.readings]),
        ]


def single_stream(calls, stop, samples):
    """Send the next request when the last one is done; read counters after calls of 0.5 ms or more.

    After shorter calls they are read every 0.5 ms. The two system calls slow down the next call, by
    a percent of a short one, and so few of the calls are next ones that the median doesn't show it.
    """
    _loop(calls, stop, samples, _BETWEEN_READINGS)


def offline(calls, stop, samples):
    """Make the calls back to back; counters are read at both ends only."""
    _loop(calls, stop, samples, float("inf"))


def seconds(values):
    """Return numbers as a buffer of the same kind as those of the samples."""
    return array("d", values)


def turn(calls, request, samples):
    """Make the calls of a TurnRequest, and fill ``samples`` with those that are timed."""
    ordered = request.ordered(calls)
    for index in range(request.skip):
        ordered[index % len(ordered)]()
    stop = Stop(0, request.timed, float("inf"))
    _loop(ordered, stop, samples, _BETWEEN_READINGS, in_turn=True)


def _buffer():
    return array("d", bytes(8 * CAPACITY + 8))


def _loop(calls, stop, samples, between_readings, in_turn=False, clock=time.perf_counter):
    # Everything that the loop uses is a local name: looking up others costs time between calls.
    start = samples.start
    end = samples.end
    wait = samples.wait
    cpu = samples.cpu
    at = samples.at
    turn = len(calls)
    slots = samples.slots_of_turn(turn, stop.least) if in_turn else samples.slots(turn)
    outputs = samples.outputs
    queue = QueueWait(of_others=True)
    seconds = stop.seconds
    least = stop.least
    count = 0
    readings = 1
    wait[0] = queue.read()
    cpu[0] = cpu_time()
    at[0] = 0
    after = clock()
    over = after + stop.longest
    reading = after + between_readings
    while not count or (
        count < CAPACITY and after < over and (after - start[0] < seconds or count < least)
    ):
        place = count % turn
        call = calls[place]
        before = clock()
        output = call()
        after = clock()
        start[count] = before
        end[count] = after
        outputs[slots[place]] = output
        count += 1
        if after >= reading:
            wait[readings] = queue.read()
            cpu[readings] = cpu_time()
            at[readings] = count
            readings += 1
            reading = after + between_readings
    if at[readings - 1] != count:
        wait[readings] = queue.read()
        cpu[readings] = cpu_time()
        at[readings] = count
        readings += 1
    queue.close()
    samples.count = count
    samples.readings = readings


SCENARIOS = {"single_stream": single_stream, "offline": offline}
"""The loop of each scenario by its name."""
