"""Numbers of the fields of Perfetto's messages, of those that are written here.

They are those of
https://github.com/google/perfetto/blob/main/protos/perfetto/trace/perfetto_trace.proto.
"""

from __future__ import annotations


class PerfettoTrace:
    """The whole file."""

    PACKET = 1


class TracePacket:
    """A part of the file."""

    CLOCK_SNAPSHOT = 6
    TIMESTAMP = 8
    TRUSTED_SEQUENCE_ID = 10
    TRACK_EVENT = 11
    INTERNED_DATA = 12
    SEQUENCE_FLAGS = 13
    DEFAULTS = 59
    TRACK_DESCRIPTOR = 60


class TracePacketDefaults:
    """Values of all packets."""

    TIMESTAMP_CLOCK_ID = 58


class ClockSnapshot:
    """Clocks that were read together."""

    CLOCKS = 1
    PRIMARY_TRACE_CLOCK = 2


class Clock:
    """One of the clocks, and its time."""

    CLOCK_ID = 1
    TIMESTAMP = 2


class InternedData:
    """Strings that events name by a number."""

    EVENT_CATEGORIES = 1
    EVENT_NAMES = 2


class Interned:
    """One of these strings."""

    IID = 1
    NAME = 2


class TrackDescriptor:
    """A track of events."""

    UUID = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    PARENT_UUID = 5
    COUNTER = 8


class ProcessDescriptor:
    """The process of a track."""

    PID = 1
    PROCESS_NAME = 6


class ThreadDescriptor:
    """The thread of a track."""

    PID = 1
    TID = 2
    THREAD_NAME = 5


class CounterDescriptor:
    """The counter of a track."""

    UNIT_NAME = 6


class TrackEvent:
    """An event on a track."""

    CATEGORY_IIDS = 3
    TYPE = 9
    NAME_IID = 10
    TRACK_UUID = 11
    DOUBLE_COUNTER_VALUE = 44
    FLOW_IDS = 47
    TERMINATING_FLOW_IDS = 48
