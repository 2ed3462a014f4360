"""The readings that a probe took of one counter."""

from typing import List, NamedTuple


class CounterReadings(NamedTuple):
    """Values of a counter, and when each was read, in nanoseconds of time.perf_counter.

    A ``rising`` counter only goes up, from any start; any other is a state, such as a temperature.
    """

    name: str
    unit: str
    rising: bool
    times: List[int]
    values: List[float]
