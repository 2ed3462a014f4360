"""The interval that predictors' profilers and probes report to a trace."""

from typing import NamedTuple, Optional


class Span(NamedTuple):
    """An interval on a thread, or on a stream of a device where ``stream`` is not None.

    ``start`` and ``end`` are nanoseconds of the clock of time.perf_counter. ``level`` is that of
    the trace (model, layer, library, kernel), ``shape`` that of the first output as text.
    ``bytes`` is -1 where it is unknown. ``correlation`` is the same number for a launch and for
    what it started, 0 without one. ``request`` is the number of the call, -1 where only the times
    tell it. ``external`` is the same number for a layer and for the calls inside of it: that of the
    moment before the layer (see steps.py), 0 without one.
    """

    level: str
    name: str
    type: str
    shape: str
    start: int
    end: int
    thread: int
    stream: Optional[str] = None
    bytes: int = -1
    correlation: int = 0
    request: int = -1
    external: int = 0
