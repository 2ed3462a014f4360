"""The probe ``cupti``: CUDA's kernels, copies, runtime and driver calls, by NVIDIA's cupti-python.

Before CUDA 13.2 and driver r610 a process has room for one subscriber, so this probe is refused
where another profiler observes; in processes of PyTorch see kineto.py then. A profiler that starts
later takes CUPTI over without a word, and the probe sees nothing, which is a fault.

Where a predictor runs layers one by one, each moment between layers has a number, which CUPTI is
given as an external correlation id. Every call of the thread inside of the layer then carries it,
so calls find their layers without comparing two clocks. The kernels of a CUDA graph have the
correlation id of the call that launches it, so all belong to the layer around that call, if any.
"""

import ctypes
import functools
import itertools
import os
import re
import threading
import time
from typing import Any, NamedTuple, Optional

from ..probe import Probe, ProbeUnavailable, Span
from ..timeline import LARGEST_STEP, wall_offset

_BUFFER = 8 << 20  # bytes
_VERSION = re.compile(r"_v\d{4,}$")  # of CUDA, behind the names of runtime calls
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}  # CUpti_ActivityMemcpyKind


class _Record(NamedTuple):
    """The fields of an activity; times are nanoseconds of the wall clock.

    A call has a ``thread`` (the low half of the pthread's number), all else has a ``stream``.
    """

    name: str
    type: str
    start: int
    end: int
    correlation: int
    thread: int = 0
    stream: Optional[str] = None
    bytes: int = -1


class CudaProbe(Probe):
    """Level ``library``: runtime and driver calls; level ``kernel``: kernels and copies, too."""

    levels = ("library", "kernel")
    _offset = 0

    def start(self):
        """Note the clocks; raises ProbeUnavailable without a GPU."""
        if not self.device.startswith("cuda"):
            raise ProbeUnavailable(
                "the device is %s; CUDA's calls and kernels are a GPU's" % self.device
            )
        self._offset = wall_offset()

    def check(self):
        """Note as a fault that nothing was seen, or that the clocks were set meanwhile."""
        step = abs(wall_offset() - self._offset)
        if any(span.level == self.level for span in self.spans):
            if step > LARGEST_STEP:
                self.fault = (
                    "the wall clock stepped by %.3f ms while %s used it: "
                    "kernels may lie beside their calls" % (step / 1e6, self.name)
                )
        else:
            what = "kernel or copy" if self.level == "kernel" else "call of CUDA"
            self.fault = self.fault or (
                "not one %s was seen on %s: another profiler in the process took CUPTI over, "
                "or the model ran elsewhere" % (what, self.device)
            )


class Cupti(CudaProbe):
    """CUDA's activities, by NVIDIA's own package."""

    name = "cupti"
    active = False  # whether a probe of this class observes in this process
    _cupti: Any = None
    _numbers = itertools.count(1)  # of moments: each is used once in a process
    _pushed = False

    def start(self):
        """Subscribe to the activities of the level.

        Raises ProbeUnavailable without a GPU, the package, the permission, or the subscription.
        """
        super().start()
        try:
            from cupti import cupti
        except ImportError as error:
            raise ProbeUnavailable(
                "cupti-python can't be imported (%s); put it beside the stack, as in the stack it "
                "changes what is measured: docs/tracing.md shows how" % error
            ) from None
        self._cupti = cupti
        self._kind = cupti.ExternalCorrelationKind.CUSTOM2  # Kineto has the other two
        self._records = []
        self._enabled = []
        self._external = {}
        try:
            cupti.activity_register_callbacks(self._buffer_requested, self._buffer_completed)
            for kind in _kinds(cupti, self.level):
                cupti.activity_enable(kind)
                self._enabled.append(kind)
        except Exception as error:
            raise ProbeUnavailable(_reason(error)) from error
        Cupti.active = True

    def stop(self):
        """Flush and disable, and make spans of the records."""
        if self._cupti is None:
            return
        Cupti.active = False
        self._pop_number()
        self._try(self._cupti.activity_flush_all, 1)
        self._try(self._ask_for_dropped)
        for kind in self._enabled:
            self._try(self._cupti.activity_disable, kind)
        self._cupti = None
        self.spans = self._make_spans()
        self.check()

    def moment(self):
        """Give what this thread calls from now on another number."""
        self._pop_number()
        number = next(self._numbers)
        push = self._cupti.activity_push_external_correlation_id
        self._pushed = self._try(push, self._kind, number)
        if self._pushed:
            self.moments.append((int(time.perf_counter() * 1e9), number))

    def _pop_number(self):
        if self._pushed:
            pop = self._cupti.activity_pop_external_correlation_id
            self._pushed = not self._try(pop, self._kind)

    def _try(self, call, *arguments):
        """Return whether a call succeeded.

        A failure is noted as the fault and goes no further: the records so far are still good.
        """
        try:
            call(*arguments)
        except Exception as error:
            self.note_fault(error)
            return False
        return True

    def _buffer_requested(self):
        return _BUFFER, 0

    def _buffer_completed(self, activities):
        """Copy the fields out at once: the objects die with their buffer."""
        external = self._cupti.ActivityKind.EXTERNAL_CORRELATION
        try:
            for activity in activities:
                if activity.kind == external:
                    if activity.external_kind == self._kind:
                        self._external[activity.correlation_id] = activity.external_id
                else:
                    self._records.append(_copy(self._cupti, activity))
        except Exception as error:  # an exception in a callback of the driver would be lost
            self.note_fault(error)

    def _ask_for_dropped(self):
        """Note as a fault the records for which there was no buffer."""
        dropped = ctypes.c_size_t()
        self._cupti.activity_get_num_dropped_records(0, 0, ctypes.addressof(dropped))
        if dropped.value:
            self.fault = "CUPTI dropped %d records, so calls or kernels lack" % dropped.value

    def _make_spans(self):
        threads = _thread_numbers()
        spans = []
        for record in self._records:
            if record.start and record.end:  # 0: CUPTI could not take the time
                span = _span(record, self._offset, threads)
                number = self._external.get(record.correlation, 0)
                spans.append(span._replace(external=number))
        return spans


def _kinds(cupti, level):
    """Return the kinds of activities that a level needs."""
    kinds = cupti.ActivityKind
    chosen = [kinds.RUNTIME, kinds.DRIVER, kinds.EXTERNAL_CORRELATION]
    if level == "kernel":
        chosen += [kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET]
    return chosen


def _copy(cupti, activity):
    kinds = cupti.ActivityKind
    if activity.kind in (kinds.RUNTIME, kinds.DRIVER):
        return _Record(
            name=_call_name(cupti, activity.kind, activity.cbid),
            type="",
            start=activity.start,
            end=activity.end,
            correlation=activity.correlation_id,
            thread=activity.thread_id,
        )
    if activity.kind == kinds.MEMCPY:
        direction = int(activity.copy_kind)
        name = "memcpy " + _COPIES.get(direction, str(direction))
    elif activity.kind == kinds.MEMSET:
        name = "memset"
    else:
        name = _readable(activity.name)
    size = getattr(activity, "bytes", -1)
    kind = kernel_type(activity.graph_id) if size < 0 else name.partition(" ")[0]
    return _Record(
        name=name,
        type=kind,
        start=activity.start,
        end=activity.end,
        correlation=activity.correlation_id,
        stream="cuda:%d stream %d" % (activity.device_id, activity.stream_id),
        bytes=size,
    )


def kernel_type(graph: int) -> str:
    """Return the type of a kernel by the number of the CUDA graph that launched it, 0 for none."""
    return "graph kernel" if graph else "kernel"


@functools.lru_cache(maxsize=None)
def _readable(name):
    """Return a mangled name as C++ has it, by the C++ library; other names as they are."""
    if not name.startswith("_Z"):
        return name
    try:
        demangle = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return name
    demangle.restype = ctypes.c_void_p
    text = demangle(name.encode(), None, None, None)
    if not text:
        return name
    found = ctypes.string_at(text).decode()
    ctypes.CDLL(None)["free"](ctypes.c_void_p(text))
    return found


def _call_name(cupti, kind, number):
    domain = cupti.CallbackDomain.DRIVER_API
    api = "driver"
    if kind == cupti.ActivityKind.RUNTIME:
        domain = cupti.CallbackDomain.RUNTIME_API
        api = "runtime"
    try:
        return _VERSION.sub("", cupti.get_callback_name(domain, number))
    except Exception:
        return "%s call %d" % (api, number)


def _span(record, offset, threads):
    """Return a record as a span on the monotonic clock."""
    thread = 0
    level = "kernel"
    if record.stream is None:
        thread = threads.get(record.thread & 0xFFFFFFFF, record.thread)
        level = "library"
    return Span(
        level,
        record.name,
        record.type,
        "",
        record.start - offset,
        record.end - offset,
        thread,
        stream=record.stream,
        bytes=record.bytes,
        correlation=record.correlation,
    )


def _thread_numbers():
    """Return the kernel's number of each Python thread by the low half of its pthread's number.

    CUPTI gives the latter. Python keeps the number that the main thread had before a fork.
    """
    numbers = {}
    main = threading.main_thread()
    for thread in threading.enumerate():
        if thread.ident:
            native = getattr(thread, "native_id", None)  # from Python 3.8 on
            if thread is main:
                native = os.getpid()
            numbers[thread.ident & 0xFFFFFFFF] = native or thread.ident
    return numbers


def _reason(error):
    """Return why CUPTI refused, with what a user can do about it."""
    text = "%s: %s" % (type(error).__name__, error)
    if "MULTIPLE_SUBSCRIBERS" in text:
        return (
            "another profiler holds CUPTI in this process (torch.profiler, Nsight): "
            "end it, or trace without it (%s)" % text
        )
    if "INSUFFICIENT_PRIVILEGES" in text:
        return (
            "not permitted: the driver lets only root profile; "
            "set NVreg_RestrictProfilingToAdminUsers=0 (%s)" % text
        )
    if type(error).__name__ == "NotSupportedError":
        return (
            "CUPTI finds no driver, or one of another CUDA version: "
            "install the cupti-python of the driver's (%s)" % text
        )
    return "CUPTI: %s" % text
