"""Probes: context managers that observe calls from inside the agent, and what they report.

What a probe saw is in ``spans``, ``series`` and ``moments`` once its context has ended.
``missing`` maps what it could not read to the reason, and ``fault`` is what went wrong while it
observed, or empty. A probe never makes a call fail.
"""

import contextlib
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple


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


class CounterReadings(NamedTuple):
    """Values of a counter, and when each was read, in nanoseconds of time.perf_counter.

    A ``rising`` counter only goes up, from any start; any other is a state, such as a temperature.
    """

    name: str
    unit: str
    rising: bool
    times: List[int]
    values: List[float]


class ProbeStatus(NamedTuple):
    """The result of using one probe.

    ``reason`` says why it was not available. ``missing`` maps what it could not read to the reason.
    ``fault`` is what went wrong while it observed, or empty. ``stepwise`` says of a layer profiler
    whether it runs the layers one by one; it is None for all else.
    """

    probe: str
    available: bool
    reason: str = ""
    missing: Optional[Dict[str, str]] = None
    fault: str = ""
    stepwise: Optional[bool] = None

    def as_fields(self) -> Dict[str, Any]:
        """Return the status as it is sent and stored: a dict for JSON."""
        fields: Dict[str, Any] = {
            "probe": self.probe,
            "available": self.available,
            "reason": self.reason,
            "missing": self.missing or {},
            "fault": self.fault,
        }
        if self.stepwise is not None:
            fields["stepwise"] = self.stepwise
        return fields


class ProbeUnavailable(Exception):
    """A probe cannot observe here; the text is the reason and what to do about it."""


class Probe:
    """A probe of one device.

    A subclass sets ``name``, which is also the name of its file, and the ``levels`` that it serves.
    A probe that reads counters overrides ``read``, and ``start`` and ``stop`` for what that needs;
    one that records spans fills ``spans`` in ``stop``.
    """

    name = ""
    levels: Tuple[str, ...] = ()
    # Seconds between the readings of a thread; None: counters are read between calls only.
    period: Optional[float] = None
    units: Dict[str, str] = {}
    rising: Tuple[str, ...] = ()  # names of the counters that only go up

    def __init__(self, device: str, level: str = "", options: Optional[Dict[str, Any]] = None):
        self.device = device
        self.level = level
        self.options = options or {}
        self.spans: List[Span] = []
        self.missing: Dict[str, str] = {}
        self.fault = ""
        # (nanoseconds, number) of the moments between layers, where the spans carry such numbers.
        self.moments: List[Tuple[int, int]] = []
        self._readings: Dict[str, CounterReadings] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: Optional[threading.Thread] = None

    @property
    def series(self) -> List[CounterReadings]:
        """The readings of each counter."""
        return list(self._readings.values())

    def start(self) -> None:
        """Begin to observe; raise ProbeUnavailable where that is not possible."""

    def read(self) -> Dict[str, Any]:
        """Return the values of the counters now, by name."""
        return {}

    def stop(self) -> None:
        """Stop observing, and free what ``start`` took, even if that failed half-way."""

    def between(self) -> None:
        """Take a reading: before the first call and after each.

        Calls that a framework profiles in one go have one reading before and one after them all.
        """
        self._take_reading()

    def moment(self) -> None:
        """Note that no layer runs now, for frameworks whose layers run one by one."""

    def note_fault(self, error: BaseException) -> None:
        """Keep what went wrong; the last fault is the one that is reported."""
        self.fault = "%s: %s" % (type(error).__name__, error)

    def __enter__(self) -> "Probe":
        try:
            self.start()
        except BaseException:
            with contextlib.suppress(Exception):  # the reason why it did not start matters more
                self.stop()
            raise
        if self.period:
            self._thread = threading.Thread(target=self._sample, name="mlms-" + self.name)
            self._thread.daemon = True
            self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join(5)
        try:
            self.stop()
        except Exception as error:  # earlier readings are still good
            self.note_fault(error)

    def _sample(self):
        while not self._ended.wait(self.period):
            self._take_reading()

    def _take_reading(self):
        try:
            with self._lock:
                before = time.perf_counter()
                values = self.read()
                after = time.perf_counter()
                middle = int((before + after) / 2 * 1e9)
                for name, value in values.items():
                    self._add(name, middle, float(value))
        except Exception as error:
            self.note_fault(error)

    def _add(self, name, at, value):
        if name not in self._readings:
            unit = self.units.get(name, "")
            self._readings[name] = CounterReadings(name, unit, name in self.rising, [], [])
        self._readings[name].times.append(at)
        self._readings[name].values.append(value)
