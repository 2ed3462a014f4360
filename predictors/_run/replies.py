"""The records that an agent replies with; their fields are the fields of the JSON header."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .protocol import NamedArrays, OutgoingReply, Profile, Tensor


class HelloReply(NamedTuple):
    """The predictor's versions and devices, and the interpreter that runs it.

    ``protocol`` is protocol.VERSION, ``process`` the agent's process id; ``cores`` are those that
    the process may use, None where the system does not say. ``ready`` is when
    the interpreter had started, by time.monotonic. ``import_seconds`` is what it took to import the
    framework and ask it for both, ``import_waited`` the part that the thread waited for a core.
    ``requests`` are those that the agent answers, None for all; ``python`` is "" without one.
    """

    protocol: int
    process: int
    python: str
    executable: str
    versions: Dict[str, str]
    devices: List[str]
    cores: Optional[List[int]]
    ready: Optional[float] = None
    import_seconds: Optional[float] = None
    import_waited: float = 0.0
    requests: Optional[List[str]] = None


class UsageReply(NamedTuple):
    """The resources of a process: its bytes and those of its device, threads, file descriptors.

    ``allocated`` are the bytes that malloc gave out, 0 where it doesn't say. ``device_memory`` is
    what the process holds there, or where that isn't told all that is used on the device; None
    where it can't be read or is the host's.
    """

    memory: int
    device_memory: Optional[int]
    threads: int
    descriptors: int
    allocated: int = 0


class DeviceBytes(NamedTuple):
    """The peak of a process's memory on its device since the model began to load.

    ``counters`` has it by the name of what tells it, the framework's own counter first; where it is
    empty, ``missing`` is the reason.
    """

    counters: Dict[str, int]
    missing: str = ""


class LoadReply(NamedTuple):
    """The device and threads that a model really uses, its signature, and what loading took.

    ``waited`` are the seconds of it that the thread waited for a core; ``rss_before`` is the
    resident memory before, in bytes without pages of programs and libraries, of which all peaks
    are without, too. ``peak_is_since_load`` says whether the peaks of memory that
    follow began here; where the kernel cannot reset the peak, they are those of the process.
    ``l2_bytes`` is the size of a GPU's L2 cache, 0 if not told.
    ``default_output`` is the one of a caller who names none, "" where there is no such one, and
    ``device_facts`` are the predictor's for the record. ``unmeasured`` has the reason of each
    quantity that can't be measured of this model, by name.
    """

    device: str
    threads: Optional[int]
    inputs: List[Tensor]
    outputs: List[Tensor]
    seconds: float
    waited: float
    rss_before: int
    peak_is_since_load: bool
    default_output: str = ""
    l2_bytes: int = 0
    device_facts: Optional[Dict[str, str]] = None
    unmeasured: Dict[str, str] = {}


class RunReply(NamedTuple):
    """The process's peak of resident memory in bytes.

    ``bind_seconds`` is what it took to bind the first batch, 0 where none was sent. ``grown`` are
    the bytes that the process holds more than before the calls. The energy is as in LoadRunReply.
    ``busy`` are the threads that gained CPU time in the calls, None where the kernel doesn't tell.
    ``energy_period`` are the seconds in which a GPU's counter of energy advances, else None.
    ``device_memory`` is None on the CPU.
    """

    peak_rss: int
    bind_seconds: float
    grown: int
    joules: Dict[str, float] = {}
    idle_watts: Dict[str, float] = {}
    energy_missing: str = "the agent doesn't tell it"
    busy: Optional[int] = None
    energy_period: Optional[float] = None
    device_memory: Optional[DeviceBytes] = None


class LoadRunReply(NamedTuple):
    """The end of a load; its records came before, in blocks, and the last of them come with it.

    ``peak_rss`` is the process's peak of resident memory in bytes, ``own_bytes`` the part of it
    that the schedule and outputs that are held take. ``instance_bytes`` has the resident memory
    that each instance after the first took. ``joules`` are those of each counter of energy during
    the load, ``idle_watts`` the power before it, and ``energy_missing`` says why there is no
    counter, or is empty. ``busy`` are the threads that gained CPU time in the load, None where the
    kernel doesn't tell. ``device_memory`` is None on
    the CPU.
    """

    peak_rss: int
    own_bytes: int
    instance_bytes: List[int]
    joules: Dict[str, float]
    idle_watts: Dict[str, float]
    energy_missing: str
    busy: Optional[int] = None
    energy_period: Optional[float] = None
    device_memory: Optional[DeviceBytes] = None


class ServedReply(NamedTuple):
    """Calls of the last load of which one stands for all of the same samples and outputs.

    ``samples`` has those of each, ``usual`` whether most calls of these samples gave the same, and
    ``picks`` how many of the calls that were picked did. Of all ``calls`` whose outputs are held
    ``others`` gave something else than most of the same samples; ``held`` and ``differing`` are
    both numbers by sample.
    """

    samples: List[List[int]]
    usual: List[bool]
    picks: List[int]
    calls: int
    others: int
    held: List[int]
    differing: List[int]


class LoadGenReply(NamedTuple):
    """The process's peak of resident memory in bytes, after a run of LoadGen."""

    peak_rss: int


class BindReply(NamedTuple):
    """The clocks that turns have: waits for a core, the device's own events.

    ``stoppable`` says whether the process may be stopped between turns. ``bind_seconds`` is what
    it took to bind the first batch. ``energy`` says whether runs tell the energy of the device, and
    ``energy_seconds`` how long a run must be for it.
    """

    wait: bool
    device: bool
    stoppable: bool
    bind_seconds: float
    energy: bool = False
    energy_seconds: float = 0.0


class MoveReply(NamedTuple):
    """The cores that the process has now, and whether it had threads on others than it moved from.

    ``cores`` is None where the system doesn't tell.
    """

    cores: Optional[List[int]]
    were_beyond: bool


class IdleReply(NamedTuple):
    """The CPU seconds of the process while nothing was called."""

    cpu: float


class TurnReply(NamedTuple):
    """The process's peaks of memory, of resident bytes and on the device.

    None where they were not asked for; on the CPU there is none of a device. ``event_times`` are
    the predictor's, of further calls after them.
    """

    peak_rss: Optional[int]
    device_memory: Optional[DeviceBytes] = None
    event_times: Optional[Tuple[float, Optional[float]]] = None


class RepeatsReply(NamedTuple):
    """How many calls of turns were digested, and how many gave something else than most of them.

    Calls on different batches are told apart. ``kept`` has the batch of each of the outputs that
    are kept.
    """

    calls: int
    differing: int
    kept: List[int]


class TraceReply(NamedTuple):
    """The fields of a trace; trace_reply.py describes those that its columns refer to.

    ``load`` has start and end of the last load, in nanoseconds of time.perf_counter.
    """

    strings: List[str]
    tracks: List[Tuple[int, Any]]
    levels: List[str]
    series: List[Tuple[str, str, bool]]
    probes: List[Dict[str, Any]]
    process: int
    load: Tuple[int, int]


class ProfileReply(NamedTuple):
    """The layers of each call under the framework's own profiler."""

    profiles: List[Profile]


def make_reply(record: Any, arrays: Optional[NamedArrays] = None) -> OutgoingReply:
    """Return a reply with the fields of a record, which is a NamedTuple."""
    return OutgoingReply(dict(record._asdict()), arrays or [])
