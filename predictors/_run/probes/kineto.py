"""What CUDA does, by PyTorch's own profiler (Kineto): for processes of PyTorch where CUPTI can't be
read directly.

Never run on a GPU yet: written against the events of torch.autograd's profiler. Kineto is CUPTI's
subscriber then, and a layer profiler that uses torch.profiler, too (TorchScript, what is compiled),
can't run beside it.
"""

import re
import sys

from ..timeline import LARGEST_STEP, wall_offset
from . import Probe, ProbeUnavailable, Span
from .cupti import Cupti

_CALL = re.compile(r"^cu(da)?[A-Z]")  # of the runtime, of the driver
_BYTES = re.compile(r'"bytes": *(\d+)')


class Kineto(Probe):
    """The same spans as the probe ``cupti``."""

    name = "kineto"
    levels = ("library", "kernel")
    _profile = None

    def start(self):
        """Begin to profile; raises ProbeUnavailable without a GPU or PyTorch, or where CUPTI is
        read already.
        """
        if not self.device.startswith("cuda"):
            raise ProbeUnavailable(
                "the device is %s; CUDA's calls and kernels are a GPU's" % self.device
            )
        if Cupti.watching:
            raise ProbeUnavailable("it isn't needed: the probe cupti watches")
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
            raise ProbeUnavailable(
                "torch.profiler: %s: %s" % (type(error).__name__, error)
            ) from error
        self._profile = profile

    def stop(self):
        """End, and make spans of the events."""
        profile, self._profile = self._profile, None
        if profile is None:
            return
        profile.__exit__(None, None, None)
        stepped = abs(wall_offset() - self._offset)
        if stepped > LARGEST_STEP:
            self.fault = "the wall clock stepped by %.3f ms while Kineto used it" % (stepped / 1e6)
        events = profile.profiler.kineto_results.events()
        spans = [_span(event, self._offset) for event in events]
        self.spans = [
            span for span in spans if span and (self.level == "kernel" or span.level == "library")
        ]

    def read(self):
        """Nothing is counted between calls."""
        return {}


def _span(event, offset):
    """Return a call, kernel or copy as a span; None for what is neither, such as annotations."""
    name, start, size = event.name(), event.start_ns() - offset, -1
    end = start + event.duration_ns()
    if "CPU" in str(event.device_type()):
        if not _CALL.match(name):
            return None
        thread = (
            event.device_resource_id()
        )  # of what runs on the host that is the kernel's number of the thread
        return Span(
            "library", name, "", "", start, end, thread, None, size, event.correlation_id(), -1
        )
    if getattr(event, "is_user_annotation", bool)():
        return None
    kind = next((kind for kind in ("memcpy", "memset") if name.lower().startswith(kind)), "kernel")
    if kind != "kernel":
        found = _BYTES.search(getattr(event, "metadata_json", str)())
        size = int(found.group(1)) if found else -1
    where = "cuda:%d stream %d" % (event.device_index(), event.device_resource_id())
    return Span("kernel", name, kind, "", start, end, 0, where, size, event.correlation_id(), -1)
