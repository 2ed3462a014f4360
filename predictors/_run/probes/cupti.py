"""What CUDA does, by NVIDIA's cupti-python in the stack's interpreter: kernels, copies, runtime and
driver calls.

Never run on a GPU yet: written against the package's documentation. Before CUDA 13.2 and driver
r610 a process has room for one subscriber, so this one refuses to watch where another does; in
processes of PyTorch see kineto.py then.

Where a predictor runs layers one by one, CUPTI is told the number of the moment before each (an
external correlation id), which every call of the thread inside of it then has: so calls find their
layers without comparing two clocks.
"""

import itertools
import threading
import time

from ..timeline import LARGEST_STEP, wall_offset
from . import Probe, ProbeUnavailable, Span

_BUFFER = 8 << 20  # bytes
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}  # CUpti_ActivityMemcpyKind


class Cupti(Probe):
    """Level ``library``: runtime and driver calls; level ``kernel``: kernels and copies, too."""

    name = "cupti"
    levels = ("library", "kernel")
    watching = False  # whether one does in this process
    _cupti = None
    _numbers = itertools.count(1)  # of moments: each once in a process
    _pushed = False

    def start(self):
        """Subscribe and enable; raises ProbeUnavailable without a GPU, the package, the permission,
        or the subscription.
        """
        if not self.device.startswith("cuda"):
            raise ProbeUnavailable(
                "the device is %s; CUDA's calls and kernels are a GPU's" % self.device
            )
        try:
            from cupti import cupti
        except ImportError as error:
            raise ProbeUnavailable(
                "cupti-python can't be imported in the stack (%s); pip install cupti-python there"
                % error
            ) from None
        self._cupti, self._records, self._enabled, self._external = cupti, [], [], {}
        self._kinds = _kinds(cupti, self.level)
        self._offset = wall_offset()
        try:
            cupti.activity_register_callbacks(self._requested, self._completed)
            for kind in self._kinds:
                cupti.activity_enable(kind)
                self._enabled.append(kind)
        except Exception as error:
            raise ProbeUnavailable(_why(error)) from error
        Cupti.watching = True

    def stop(self):
        """Flush and disable, and make spans of the records."""
        if self._cupti is None:
            return
        Cupti.watching = False
        self._pop()
        self._try(self._cupti.activity_flush_all, 1)
        for kind in self._enabled:
            self._try(self._cupti.activity_disable, kind)
        self._cupti = None
        self._finish()

    def read(self):
        """Nothing is counted between calls."""
        return {}

    def moment(self):
        """Begin another number for what this thread calls."""
        self._pop()
        number = next(self._numbers)
        kind = self._cupti.ExternalCorrelationKind.CUSTOM0
        self._pushed = self._try(self._cupti.activity_push_external_correlation_id, kind, number)
        if self._pushed:
            self.moments.append((int(time.perf_counter() * 1e9), number))

    def _pop(self):
        if self._pushed:
            kind = self._cupti.ExternalCorrelationKind.CUSTOM0
            self._pushed = not self._try(self._cupti.activity_pop_external_correlation_id, kind)

    def _try(self, call, *arguments):
        """Return whether a call went well.

        Else note the fault and go on: what was recorded is still good.
        """
        try:
            call(*arguments)
        except Exception as error:
            self._note(error)
            return False
        return True

    def _requested(self):
        return _BUFFER, 0

    def _completed(self, activities):
        """Copy the fields out at once: the objects die with their buffer."""
        try:
            for activity in activities:
                if activity.kind == self._cupti.ActivityKind.EXTERNAL_CORRELATION:
                    self._external[activity.correlation_id] = activity.external_id
                else:
                    self._records.append(_copy(self._cupti, activity))
        except Exception as error:  # an exception in a callback of the driver's would be lost
            self._note(error)

    def _finish(self):
        stepped = abs(wall_offset() - self._offset)
        if stepped > LARGEST_STEP:
            self.fault = (
                "the wall clock stepped by %.3f ms while CUPTI used it: kernels may lie beside their calls"
                % (stepped / 1e6)
            )
        threads = _thread_numbers()
        spans = [span for record in self._records for span in _spans(record, self._offset, threads)]
        self.spans = [
            span._replace(external=self._external.get(span.correlation, 0)) for span in spans
        ]


def _kinds(cupti, level):
    kinds = cupti.ActivityKind
    chosen = [kinds.RUNTIME, kinds.DRIVER, kinds.EXTERNAL_CORRELATION]
    return (
        chosen + [kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET]
        if level == "kernel"
        else chosen
    )


def _copy(cupti, activity):
    kinds, kind = cupti.ActivityKind, activity.kind
    if kind in (kinds.RUNTIME, kinds.DRIVER):
        name = _call_name(cupti, kind, activity.cbid)
        return (
            "call",
            name,
            activity.start,
            activity.end,
            activity.thread_id,
            activity.correlation_id,
            -1,
        )
    copied = getattr(activity, "bytes", -1)
    if kind == kinds.MEMCPY:
        name = "memcpy " + _COPIES.get(int(activity.copy_kind), str(int(activity.copy_kind)))
    else:
        name = "memset" if kind == kinds.MEMSET else activity.name
    where = "cuda:%d stream %d" % (activity.device_id, activity.stream_id)
    return (
        name.partition(" ")[0] if copied >= 0 else "kernel",
        name,
        activity.start,
        activity.end,
        where,
        activity.correlation_id,
        copied,
    )


def _call_name(cupti, kind, number):
    domain = cupti.CallbackDomain
    runtime = kind == cupti.ActivityKind.RUNTIME
    try:
        return cupti.get_callback_name(domain.RUNTIME_API if runtime else domain.DRIVER_API, number)
    except Exception:
        return "%s call %d" % ("runtime" if runtime else "driver", number)


def _spans(record, offset, threads):
    kind, name, start, end, where, correlation, size = record
    if not start or not end:  # CUPTI's word for a time that it couldn't take
        return
    start, end = start - offset, end - offset
    if kind == "call":
        thread = threads.get(where & 0xFFFFFFFF, where)
        yield Span("library", name, "", "", start, end, thread, None, -1, correlation, -1)
    else:
        yield Span("kernel", name, kind, "", start, end, 0, where, size, correlation, -1)


def _thread_numbers():
    """Return the kernel's number of each Python thread by the low half of its pthread's, which is
    what CUPTI tells.
    """
    return {
        thread.ident & 0xFFFFFFFF: getattr(thread, "native_id", None) or thread.ident
        for thread in threading.enumerate()
        if thread.ident
    }


def _why(error):
    text = "%s: %s" % (type(error).__name__, error)
    if "MULTIPLE_SUBSCRIBERS" in text:
        return (
            "another profiler holds CUPTI in this process (torch.profiler, Nsight): end it, or trace without it (%s)"
            % text
        )
    if "INSUFFICIENT_PRIVILEGES" in text:
        return (
            "not permitted: the driver lets only root profile; set NVreg_RestrictProfilingToAdminUsers=0 (%s)"
            % text
        )
    if type(error).__name__ == "NotSupportedError":
        return (
            "CUPTI finds no driver, or one of another CUDA version: install the cupti-python of the driver's (%s)"
            % text
        )
    return "CUPTI: %s" % text
