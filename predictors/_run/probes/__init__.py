"""Probes: context managers that watch calls from inside the agent, and hand over what they saw at
the end.

A probe is a class with a ``name`` and the ``levels`` it serves, made with the device (``cpu``,
``cuda:0``). Entering it raises ProbeUnavailable with the reason and what to do where it can't watch
here. ``between()`` is called before the first call and after each, or behind all that a framework
profiles in one go; ``moment()`` between layers that run one by one. After leaving it, ``spans`` and
``series`` have what it saw, ``missing`` maps what it couldn't read to the reason, and ``fault``
says what went wrong while it ran, or is empty. ``moments``, (ns, number), are those between layers
that its spans have the numbers of. A probe never makes a call fail.
"""

import contextlib
import importlib
import threading
import time
from typing import Dict, List, NamedTuple, Optional


class ProbeUnavailable(Exception):
    """Why a probe can't watch, and what to do about it."""


class Span(NamedTuple):
    """An interval in nanoseconds of time.monotonic; on a thread, or on a device's stream where
    ``stream`` is not None.

    ``correlation`` links a launch and what it started; 0: none. ``request`` is -1 where only its
    time tells it. ``external`` links a layer and the calls inside of it by the number of the moment
    before it (steps.py); 0: none.
    """

    level: str
    name: str
    type: str
    shape: str
    start: int
    end: int
    thread: int
    stream: Optional[str]
    bytes: int
    correlation: int
    request: int
    external: int = 0


class Series(NamedTuple):
    """A counter: name, unit, whether it only goes up (from any start), or is a state.

    When (ns) it was how much.
    """

    name: str
    unit: str
    rising: bool
    times: List[int]
    values: List[float]


class Probe:
    """What all probes have; one that only reads counters between calls overrides start, read and
    stop.
    """

    name = ""
    levels = ()
    period = None  # seconds; where it isn't None, a thread reads, too
    units: Dict[str, str] = {}
    rising = ()  # the names of those that only go up

    def __init__(self, device):
        self.device = device
        self.spans = []
        self.missing = {}
        self.fault = ""
        self.moments = []
        self._readings = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = None

    @property
    def series(self):
        """The counters that were read."""
        return list(self._readings.values())

    def start(self):
        """Begin to watch; raise ProbeUnavailable where that can't be."""

    def read(self):
        """Return the values now, by name."""
        return {}

    def stop(self):
        """End watching, and free what start took."""

    def between(self):
        """Take a reading, of which there is one before the first call and one after each."""
        self._take()

    def moment(self):
        """Note that no layer runs now, where layers run one by one."""

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            with contextlib.suppress(Exception):  # why it couldn't start is what matters
                self.stop()
            raise
        if self.period:
            self._thread = threading.Thread(target=self._sample, name="mlms-" + self.name)
            self._thread.daemon = True
            self._thread.start()
        return self

    def __exit__(self, *raised):
        self._ended.set()
        if self._thread:
            self._thread.join(5)
        try:
            self.stop()
        except Exception as error:  # what was read before is still good
            self._note(error)

    def _sample(self):
        while not self._ended.wait(self.period):
            self._take()

    def _take(self):
        try:
            with self._lock:
                now, values = time.perf_counter(), self.read()
                now = int((now + time.perf_counter()) / 2 * 1e9)
                for name, value in values.items():
                    if name not in self._readings:
                        self._readings[name] = Series(
                            name, self.units.get(name, ""), name in self.rising, [], []
                        )
                    self._readings[name].times.append(now)
                    self._readings[name].values.append(float(value))
        except Exception as error:
            self._note(error)

    def _note(self, error):
        self.fault = "%s: %s" % (type(error).__name__, error)


_PLACES = {
    "perf": ("perf", "Perf"),
    "io": ("system", "Io"),
    "memory": ("system", "Memory"),
    "rapl": ("power", "Rapl"),
    "hwmon": ("power", "Hwmon"),
    "nvml": ("nvml", "Nvml"),
    "gpm": ("gpm", "Gpm"),
    "cupti": ("cupti", "Cupti"),
    "kineto": ("kineto", "Kineto"),
    "bpftrace": ("bpftrace", "Bpftrace"),
}
"""Name -> the module of this folder and its class; imported when it is used."""


def open_probe(name, device, level, options=None):
    """Return a probe, not yet entered; raises ProbeUnavailable for a name that there isn't."""
    if name not in _PLACES:
        raise ProbeUnavailable(
            "there is no probe %r; there are %s" % (name, ", ".join(sorted(_PLACES)))
        )
    module, kind = _PLACES[name]
    probe = getattr(importlib.import_module(__name__ + "." + module), kind)(device)
    probe.level, probe.options = level, options or {}
    return probe


def enter_probe(stack, name, device, level, options, told):
    """Return a probe that watches until the stack is left, or None.

    ``told`` gets a word on why not.
    """
    try:
        return stack.enter_context(open_probe(name, device, level, options))
    except ProbeUnavailable as reason:
        told.append(word(name, False, str(reason)))
    except Exception as error:  # a fault of the probe's must not cost the calls
        told.append(word(name, False, "%s: %s" % (type(error).__name__, error)))
    return None


def word(name, available, reason, missing=None, fault=""):
    """Return what is told of a probe."""
    return {
        "probe": name,
        "available": available,
        "reason": reason,
        "missing": missing or {},
        "fault": fault,
    }
