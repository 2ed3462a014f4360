"""The probe ``kineto``: CUDA's calls, kernels and copies by PyTorch's own profiler.

It is for processes of PyTorch where CUPTI cannot be read directly. Kineto is CUPTI's subscriber
then, so a layer profiler that uses torch.profiler, too (TorchScript, compiled models), cannot run
beside it. Tested with hand-written fakes and, on the CPU, with a real PyTorch's events; no GPU has
run it.
"""

import re
import sys
from typing import Any

from ..probe import Probe, ProbeUnavailable
from ..span import Span
from ..timeline import LARGEST_STEP, wall_offset
from .cupti import Cupti

_CALL = re.compile(r"^cu(da)?[A-Z]")  # names of CUDA's runtime and driver calls
_BYTES = re.compile(r'"bytes": *(\d+)')


class Kineto(Probe):
    """The same spans as those of the probe ``cupti``."""

    name = "kineto"
    levels = ("library", "kernel")
    _profile: Any = None

    def start(self):
        """Begin to profile.

        Raises ProbeUnavailable without a GPU or PyTorch, or where CUPTI is read already.
        """
        if not self.device.startswith("cuda"):
            raise ProbeUnavailable(
                "the device is %s; CUDA's calls and kernels are a GPU's" % self.device
            )
        if Cupti.active:
            raise ProbeUnavailable("it isn't needed: the probe cupti observes")
        torch = sys.modules.get("torch")
        if torch is None:
            raise ProbeUnavailable("it is PyTorch's, which this process doesn't use")
        activity = torch.profiler.ProfilerActivity.CUDA
        if activity not in torch.profiler.supported_activities():
            raise ProbeUnavailable("this build of PyTorch has no CUPTI")
        self._offset = wall_offset()
        profile = torch.profiler.profile(activities=[activity])
        try:
            profile.__enter__()
        except Exception as error:
            reason = "torch.profiler: %s: %s" % (type(error).__name__, error)
            raise ProbeUnavailable(reason) from error
        self._profile = profile

    def stop(self):
        """End the profile, and make spans of its events."""
        profile = self._profile
        if profile is None:
            return
        self._profile = None
        profile.__exit__(None, None, None)
        step = abs(wall_offset() - self._offset)
        if step > LARGEST_STEP:
            self.fault = "the wall clock stepped by %.3f ms while Kineto used it" % (step / 1e6)
        for event in profile.profiler.kineto_results.events():
            span = _span(event, self._offset)
            if span and self.level in ("kernel", span.level):
                self.spans.append(span)


def _span(event, offset):
    """Return a call, kernel or copy as a span; None for all else, such as annotations."""
    name = event.name()
    start = event.start_ns() - offset
    span = Span(
        "library",
        name,
        "",
        "",
        start,
        start + event.duration_ns(),
        # The kernel's number of the thread for what runs on the host.
        event.device_resource_id(),
        correlation=event.correlation_id(),
    )
    if "CPU" in str(event.device_type()):
        return span if _CALL.match(name) else None
    if _is_annotation(event):
        return None
    kind = _device_kind(name)
    return span._replace(
        level="kernel",
        type=kind,
        thread=0,
        stream="cuda:%d stream %d" % (event.device_index(), event.device_resource_id()),
        bytes=-1 if kind == "kernel" else _copied_bytes(event),
    )


def _is_annotation(event):
    """Return whether an event is a user's annotation; older versions of PyTorch do not say."""
    is_annotation = getattr(event, "is_user_annotation", None)
    return bool(is_annotation and is_annotation())


def _device_kind(name):
    for kind in ("memcpy", "memset"):
        if name.lower().startswith(kind):
            return kind
    return "kernel"


def _copied_bytes(event):
    """Return the size of a copy, -1 where this version of PyTorch does not give it."""
    metadata = getattr(event, "metadata_json", None)
    found = _BYTES.search(metadata()) if metadata else None
    return int(found.group(1)) if found else -1
