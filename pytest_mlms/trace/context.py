"""What the analyses are of: a trace with all that several of them need, computed once.

And what they make, a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytest_mlms.trace.correlate import Parents
from pytest_mlms.trace.roofline import Point, Work, match, point
from pytest_mlms.trace.spans import Trace
from pytest_mlms.trace.tables import (
    KernelRow,
    LayerRow,
    kernel_rows,
    layer_rows,
    model_latency,
    parents_of,
)

__all__ = ["Row", "Table", "TraceContext"]

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """Columns' names, which have the units, and rows of plain values; None where it isn't known."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


class TraceContext:
    """A trace and what the analyses share of it, computed once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.about = trace.about

    @property
    def name(self) -> Row:
        """The model and the case, which every table begins with."""
        return self.about["manifest"], self.about["case"]

    @property
    def series(self) -> Row:
        """What the batch sizes of one model have in common."""
        return self.about["manifest"], self.about["framework"], self.about["device"]

    @cached_property
    def parents(self) -> Parents:
        """Who caused whom."""
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
        """Of a call without any probe."""
        return model_latency(self.trace)

    @cached_property
    def works(self) -> list[Work | None]:
        """The static operations and bytes of each layer."""
        return match(self.layers, self.about.get("static") or [])

    @property
    def total(self) -> Work | None:
        """The static operations and bytes of the whole model."""
        static = self.about.get("static") or []
        flops, moved = [one["flops"] for one in static], [one["bytes"] for one in static]
        return (
            None if not static or None in flops or None in moved else Work(sum(flops), sum(moved))
        )

    def point(self, work: Work | None, us: float | None) -> Point | None:
        """Return the dot of the roofline; None without the work, the time or the peaks."""
        peaks = self.about.get("peaks")
        return point(work, us / 1e6, peaks) if work and us and peaks else None
