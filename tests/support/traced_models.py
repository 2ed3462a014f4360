"""Traces of a model of two layers and three kernels, for analyses, queries and exports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_mlms.measure.trace.records import LayerWork, Peaks, TraceMetadata
from pytest_mlms.measure.trace.spans import Trace
from pytest_mlms.measure.trace.storage import save_trace
from tests.support.traces import RunWriter, TraceWriter

__all__ = ["US", "counted_model", "save_run", "traced_model"]

US = 1000
"""Nanoseconds of a microsecond."""

STATIC = (
    LayerWork("conv1", "Conv", 6_000_000, 60_000),
    LayerWork("relu", "Relu", 1000, 100_000),
)
METADATA = TraceMetadata(
    manifest="net",
    framework="ort",
    device="cpu",
    static=STATIC,
    peaks=Peaks(flops=400e9, bytes=40e9, how="by hand"),
)


def traced_model(batch_size: int, us: int, conv: str = "Conv", **facts: Any) -> Trace:
    """Return a trace of a model that takes ``us`` microseconds, with facts of its metadata.

    A convolution, whose type is ``conv``, takes 60 % of the time, and has a kernel of 30 µs and a copy of 10 µs. A relu takes
    the rest, and has a kernel of 5 µs.
    """
    facts = {"case": f"ort-cpu-b{batch_size}", **facts}
    metadata = replace(METADATA, batch_size=batch_size, **facts)
    writer = TraceWriter(metadata)
    for level in ("model", "layer", "kernel"):
        run = writer.run(level)
        run.predict(0, us * US)
        if level != "model":
            middle = us * US * 6 // 10
            run.layer("conv1", 0, middle, type=conv, bytes=400)
            run.layer("relu", middle, us * US, type="Relu", bytes=100)
        if level == "kernel":
            write_kernels(run, middle)
    return writer.build()


def write_kernels(run: RunWriter, relu: int) -> None:
    run.launch(1, 2, correlation=1)
    run.kernel("gemm", 10, 10 + 30 * US, correlation=1)
    run.launch(2, 3, correlation=2)
    run.kernel("memcpy", 11, 11 + 10 * US, correlation=2, type="memcpy", bytes=512)
    run.launch(relu + 1, relu + 2, correlation=3)
    run.kernel("relu", relu + 10, relu + 10 + 5 * US, correlation=3)


def counted_model(level: str) -> Trace:
    """Return a run of two layers one after the other, which count 6 page faults and 2."""
    metadata = TraceMetadata(manifest="net", case="caffe-cpu-b1", framework="caffe", device="cpu")
    writer = TraceWriter(metadata)
    run = writer.run(level)
    run.predict(10, 40)
    run.layer("conv1", 10, 19)
    run.layer("relu", 30, 39)
    run.count("page-faults", "count", [(5, 1.0), (25, 7.0), (45, 9.0)], rising=True)
    return writer.build()


def save_run(folder: Path, *traces: Trace) -> Path:
    """Save traces as the items of a run; return the folder of the run."""
    for number, trace in enumerate(traces):
        item = folder / "items" / str(number)
        item.mkdir(parents=True)
        save_trace(trace, item / "trace.npz")
    return folder
