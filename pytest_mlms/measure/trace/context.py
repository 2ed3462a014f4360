"""A trace with the tables that several analyses need, each computed once."""

from __future__ import annotations

import re
from functools import cached_property

from pytest_mlms.measure.trace.correlate import Parents, parents_of
from pytest_mlms.measure.trace.roofline import (
    RooflinePoint,
    Work,
    has_roof,
    match_work,
    roofline_point,
    total_work,
)
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.summary import LayerTime, layer_time, model_latency
from pytest_mlms.measure.trace.tables import KernelRow, LayerRow, kernel_rows, layer_rows


class TraceContext:
    """A trace, and the values that its analyses share."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.metadata = trace.metadata

    @property
    def name(self) -> tuple[str, str]:
        """The model and the case, with which rows begin."""
        return self.metadata.manifest, self.metadata.case

    @property
    def series(self) -> tuple[str, str, str, str]:
        """The name of a model's traces on one stack at all batch sizes."""
        metadata = self.metadata
        case = re.sub(rf"^(.*)-b{metadata.batch_size}(?![^-])", r"\1", metadata.case)
        return metadata.manifest, case, metadata.framework, metadata.device

    @cached_property
    def parents(self) -> Parents:
        """The parent of each span."""
        return parents_of(self.trace)

    @cached_property
    def layers(self) -> list[LayerRow]:
        """The layers, in the order in which they run."""
        return layer_rows(self.trace, self.parents)

    @cached_property
    def kernels(self) -> list[KernelRow]:
        """The kernels, the longest first."""
        return kernel_rows(self.trace, self.parents)

    @cached_property
    def latency_us(self) -> float | None:
        """Microseconds of a call without any probe; None without such a call."""
        return model_latency(self.trace)

    @cached_property
    def layer_time(self) -> LayerTime | None:
        """The time of the layers and of the calls around them; None without layers in calls."""
        return layer_time(self.trace)

    @cached_property
    def works(self) -> list[Work | None]:
        """The static work of each of ``layers``; None where it is unknown."""
        return match_work(self.layers, self.metadata.static)

    @property
    def total_work(self) -> Work | None:
        """The static work of the whole model; None where it is unknown."""
        return total_work(self.metadata.static)

    @property
    def is_quantized(self) -> bool:
        """True if a layer of the model is not limited by the peak of float32."""
        types = {layer.type for layer in self.layers}
        types |= {layer.type for layer in self.metadata.static}
        return not all(map(has_roof, types))

    def roofline_point(self, work: Work | None, us: float | None) -> RooflinePoint | None:
        """Return the point of work in float32 that takes ``us`` microseconds.

        None where the work, the time or the peaks of the device are unknown.
        """
        peaks = self.metadata.peaks
        if work is None or us is None or peaks is None:
            return None
        return roofline_point(work, us / 1e6, peaks)
