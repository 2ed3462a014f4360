"""The probe ``kineto``: CUDA's calls, kernels and copies by PyTorch's own profiler.

It is for processes of PyTorch where CUPTI cannot be read directly. Kineto is CUPTI's subscriber
then.
"""

import re
import sys
from typing import Any

from ..probe import ProbeUnavailable, Span
from .cupti import CudaProbe, Cupti, kernel_type

_CALL = re.compile(r"^cu(da)?[A-Z]")  # names of CUDA's runtime and driver calls
_GRAPH = re.compile(r'"graph id": *(\d+)')
_BYTES = re.compile(r'"bytes": *(\d+)')
_COPIES = ("memcpy", "memset")


class Kineto(CudaProbe):
    """The same spans as the probe ``cupti`` has."""

    name = "kineto"
    _profile: Any = None

    def start(self):
        """Begin to profile.

        Raises ProbeUnavailable without a GPU or PyTorch, or where CUPTI is read already.
        """
        super().start()
        if Cupti.active:
            raise ProbeUnavailable("it isn't needed: the probe cupti observes")
        torch = sys.modules.get("torch")
        if torch is None:
            raise ProbeUnavailable("it is PyTorch's, which this process doesn't use")
        activity = torch.profiler.ProfilerActivity.CUDA
        if activity not in torch.profiler.supported_activities():
            raise ProbeUnavailable("this build of PyTorch has no CUPTI")
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
        for event in profile.profiler.kineto_results.events():
            span = _span(event, self._offset)
            if span and self.level in ("kernel", span.level):
                self.spans.append(span)
        self.check()


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
    kind = _device_kind(event, name)
    return span._replace(
        level="kernel",
        type=kind,
        thread=0,
        stream="cuda:%d stream %d" % (event.device_index(), event.device_resource_id()),
        bytes=_fact(event, _BYTES, -1) if kind in _COPIES else -1,
    )


def _is_annotation(event):
    """Return whether an event is a user's annotation; older versions of PyTorch do not say."""
    is_annotation = getattr(event, "is_user_annotation", None)
    return bool(is_annotation and is_annotation())


def _device_kind(event, name):
    for kind in _COPIES:
        if name.lower().startswith(kind):
            return kind
    return kernel_type(_fact(event, _GRAPH, 0))


def _fact(event, pattern, unknown):
    """Return a number of an event's metadata, or ``unknown`` where this PyTorch gives none."""
    metadata = getattr(event, "metadata_json", None)
    found = pattern.search(metadata()) if metadata else None
    return int(found.group(1)) if found else unknown
