"""A load: queries that are served by a pool of instances, and what is recorded of each.

Records are sent in blocks while the load runs, so that memory stays bounded, and what was measured
outlives this process.
"""

import contextlib
import gc
import sys
import threading
from array import array
from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from .arrivals import ClosedLoop, OpenLoop, Taken, clock
from .generation import Generated
from .instances import Instance, Instances
from .process import QueueWait, cpu_time, use_timer_slack
from .served import ServedCalls

RECORD = ("query", "scheduled", "issued", "started", "done", "inputs")
"""The columns of a record: the number of a query, four times in nanoseconds from the start of the
load, and the size of the batch in which it ran.

``issued`` is later than ``scheduled`` by our own lag, and not by any wait for an instance or a
batch. ``started`` and ``done`` are those of the call.
"""
TOKEN = ("query", "at")
"""The columns of a token: the number of its query, and nanoseconds from the start."""
READING = ("at", "cpu", "wait")
"""The columns of a reading: nanoseconds from the start, CPU time of all threads of the process, and
the wait of the instances' threads for a core, both in nanoseconds since the start."""

_SWITCH_INTERVAL = 5e-5
"""Seconds after which a thread that waits for Python's lock gets it from one that runs Python.

The usual 5 ms would be our own lag. The framework holds the lock for longer where it likes.
"""
_BLOCK_SECONDS = 0.5  # between two blocks of records
_LEAD = 1000000  # nanoseconds from the last preparation to the start

Arrivals = Union[OpenLoop, ClosedLoop]
Send = Callable[[Any, Any, Any], None]
"""Sends the records, the readings and the tokens of a block."""


class Queries(NamedTuple):
    """The samples of the queries: ``per_query`` of ``samples`` for each, one query after another.

    A closed loop begins again with the first ones. ``rows`` is the size of a sample on the batch
    axis.
    """

    samples: Any
    per_query: int
    rows: int

    def of(self, taken: Taken) -> Sequence[int]:
        """Return the places in the library of the samples that one call takes."""
        first = taken.first * self.per_query % len(self.samples)
        return self.samples[first : first + taken.number * self.per_query]


class Recorder:
    """The records and the readings since the last block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records = array("q")
        self._tokens = array("q")
        self._start = 0
        self._cpu = 0.0
        self._waits: List[QueueWait] = []
        self._waited = 0.0

    def watch(self, wait: QueueWait) -> None:
        """Read also the waits of another thread."""
        with self._lock:
            self._waits.append(wait)

    def begin(self, start: int) -> None:
        """Let the time of the readings begin."""
        self._start = start
        self._cpu = cpu_time()
        self._waited = self._read_waits()

    def add(self, arrivals: Arrivals, taken: Taken, rows: int, call: Tuple[int, int]) -> None:
        """Record the queries of a ``call``, which is its start and its end."""
        started, done = call
        origin = arrivals.start
        for offset in range(taken.number):
            scheduled = arrivals.scheduled(taken, offset)
            lag = started - max(origin + scheduled, taken.ready)
            times = (scheduled, scheduled + lag, started - origin, done - origin)
            with self._lock:
                self._records.extend((taken.first + offset, *times, rows))

    def add_tokens(self, query: int, times: Sequence[float]) -> None:
        """Record the tokens of a query by their times, of the clock in seconds."""
        found = array("q")
        for time in times:
            found.extend((query, int(time * 1e9) - self._start))
        with self._lock:
            self._tokens.extend(found)

    def take_block(self) -> Tuple[Any, Any, Any]:
        """Return the records since the last block, a reading, and tokens, as arrays of two axes.

        There is no reading before the load begins.
        """
        import numpy

        with self._lock:
            records = self._records
            self._records = array("q")
            tokens = self._tokens
            self._tokens = array("q")
        reading = array("q", self._read() if self._start else ())
        rows = numpy.array(records, "i8").reshape(-1, len(RECORD))
        readings = numpy.array(reading, "i8").reshape(-1, len(READING))
        return rows, readings, numpy.array(tokens, "i8").reshape(-1, len(TOKEN))

    def close(self) -> None:
        """Close the kernel's files of waits."""
        for wait in self._waits:
            wait.close()

    def _read(self):
        at = clock() - self._start
        cpu = cpu_time() - self._cpu
        wait = self._read_waits() - self._waited
        return at, int(cpu * 1e9), int(wait * 1e9)

    def _read_waits(self):
        return sum(wait.read() for wait in self._waits)


class Reporter:
    """A thread that sends a block now and then, until its context ends."""

    def __init__(self, recorder: Recorder, send: Optional[Send]):
        self._recorder = recorder
        self._send = send
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._report, name="mlms-reporter", daemon=True)

    def __enter__(self) -> "Reporter":
        if self._send is not None:
            self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        if self._send is not None:
            self._thread.join()

    def _report(self):
        send: Any = self._send
        try:
            while not self._ended.wait(_BLOCK_SECONDS):
                send(*self._recorder.take_block())
        except OSError:
            """The other end is gone, which ends this process; see channel.HangUpMonitor."""


def run_load(
    instances: Instances, arrivals: Arrivals, queries: Queries, recorder: Recorder
) -> List[ServedCalls]:
    """Serve the queries of ``arrivals`` until there are no more; raises what a call raised.

    Return the calls of each instance whose outputs are held.
    """
    barrier = threading.Barrier(instances.count, lambda: _begin(arrivals, recorder))
    served: List[ServedCalls] = []

    def serve(instance: Instance) -> None:
        wait = QueueWait()
        recorder.watch(wait)
        use_timer_slack(1)
        try:
            barrier.wait()
            served.append(_serve(instance, arrivals, queries, recorder))
        finally:
            arrivals.stop()
            use_timer_slack(0)

    with undisturbed():
        instances.run(serve)
    return served


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Have threads wait shortly for Python's lock, and no collection of old garbage stop them."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_INTERVAL)
    _freeze_garbage()
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        _unfreeze_garbage()


def _begin(arrivals, recorder):
    start = clock() + _LEAD
    recorder.begin(start)
    arrivals.begin(start)


def _serve(instance, arrivals, queries, recorder):
    """Serve queries with one instance; return its calls."""
    free = arrivals.start
    served = ServedCalls()
    while clock() < free:
        pass
    while True:
        taken = arrivals.take(free)
        if taken is None:
            return served
        started = clock()
        samples = queries.of(taken)
        outputs = instance.serve(samples)
        free = clock()
        if isinstance(outputs, Generated):
            recorder.add_tokens(taken.first, outputs.times)
        recorder.add(arrivals, taken, len(samples) * queries.rows, (started, free))
        served.add(samples, outputs)


def _freeze_garbage():
    """Keep the objects there are out of collections, which would stop all threads for long."""
    gc.collect()
    if hasattr(gc, "freeze"):  # since Python 3.7
        gc.freeze()  # novm


def _unfreeze_garbage():
    if hasattr(gc, "unfreeze"):
        gc.unfreeze()  # novm
