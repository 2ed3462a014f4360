"""The arrivals of queries at a pool of instances: by a schedule, or one query after the other.

No thread issues queries. The schedule itself is the queue, as all of it is known beforehand: an
instance that is free takes the next queries and waits until they are due, and one that becomes free
late finds them waiting. So each query starts when it would from a queue that is first in, first
out, and no client competes with the model for a core, for a lock, or for Python's.

Times are nanoseconds of one monotonic clock. ``ready`` is when queries could have started: they
were due, their batch was closed, and the instance was free. What passes from then until the call is
our own lag, and nothing else is.
"""

import threading
import time
from typing import Any, NamedTuple, Optional

SPIN = 50000
"""Nanoseconds before a query is due in which an instance spins instead of sleeping.

A sleep ends 15 to 25 us late with the timer slack of load.py. Longer spins would be CPU time that
the system takes back when it is busy, by stopping the thread in a call.
"""
_LONGEST_SLEEP = 100000000  # ns between two looks at whether the load was stopped


def _clock_of_seconds():
    return int(time.perf_counter() * 1e9)


clock = getattr(time, "perf_counter_ns", _clock_of_seconds)  # Python 3.6 has seconds only
"""Return nanoseconds of the clock of time.perf_counter."""


class Taken(NamedTuple):
    """Queries that one instance serves in one call: ``number`` of them from query ``first`` on."""

    first: int
    number: int
    ready: int


class _Loop:
    """The next query of a loop, which ends ``longest`` nanoseconds after its start or before."""

    def __init__(self, longest: int):
        self._longest = longest
        self._next = 0
        self._stopped = False
        self.start = 0

    def begin(self, start: int) -> None:
        """Let the time of the load begin."""
        self.start = start

    def stop(self) -> None:
        """Have no more queries taken."""
        self._stopped = True


class OpenLoop(_Loop):
    """Queries that arrive at given times, whatever has become of those before.

    ``scheduled`` are nanoseconds from the start, in ascending order. A call takes up to ``most``
    queries that have arrived. It waits for that many, and no longer than ``max_delay`` nanoseconds
    after the first of them arrived. No call starts later than ``longest`` nanoseconds after the
    start.
    """

    def __init__(self, scheduled: Any, most: int, max_delay: int, longest: int):
        super().__init__(longest)
        self._scheduled = memoryview(scheduled)
        self._count = len(scheduled)
        self._most = most
        self._max_delay = max_delay
        self._lock = threading.Lock()

    def take(self, free: int) -> Optional[Taken]:
        """Wait for the next queries, for an instance that is free since then; None at the end."""
        with self._lock:
            first = self._next
            if first >= self._count:
                return None
            ready = max(free, self._closing_time(first))
            if not self._wait_until(ready):
                return None
            count = self._count_arrived(first)
            self._next = first + count
        return Taken(first, count, ready)

    def scheduled(self, taken: Taken, offset: int) -> int:
        """Return when a query was due, from the start; ``offset`` is its place in the call."""
        return self._scheduled[taken.first + offset]

    def _closing_time(self, first):
        """Return when the batch that begins with query ``first`` waits for no more queries."""
        due = self.start + self._scheduled[first]
        if self._most == 1:
            return due
        last = first + self._most - 1
        if last >= self._count:
            return due + self._max_delay
        return min(due + self._max_delay, self.start + self._scheduled[last])

    def _count_arrived(self, first):
        count = 1
        most = min(self._most, self._count - first)
        if most > 1:
            now = clock() - self.start
            while count < most and self._scheduled[first + count] <= now:
                count += 1
        return count

    def _wait_until(self, moment):
        """Sleep, then spin until ``moment``; return False where the load ends before."""
        over = self.start + self._longest
        now = clock()
        while now < moment - SPIN and now < over and not self._stopped:
            rest = min(moment - SPIN, over) - now
            time.sleep(min(rest, _LONGEST_SLEEP) * 1e-9)
            now = clock()
        while now < moment and now < over and not self._stopped:
            now = clock()
        return now < over and not self._stopped


class ClosedLoop(_Loop):
    """Queries that arrive when the one before is done; one instance serves them.

    They end once ``seconds`` (in nanoseconds) and ``least`` queries are both reached, or after
    ``longest`` nanoseconds.
    """

    def __init__(self, seconds: int, least: int, longest: int):
        super().__init__(longest)
        self._seconds = seconds
        self._least = least

    def take(self, free: int) -> Optional[Taken]:
        """Return the next query, which arrives as the one before is done; None at the end."""
        passed = free - self.start
        enough = passed >= self._seconds and self._next >= self._least
        if self._stopped or (self._next and (enough or passed >= self._longest)):
            return None
        taken = Taken(self._next, 1, free)
        self._next += 1
        return taken

    def scheduled(self, taken: Taken, offset: int) -> int:
        """Return when a query arrived, from the start."""
        return taken.ready - self.start
