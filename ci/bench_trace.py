"""Large traces: the parents of a million kernels, and a million spans written for Perfetto."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench_row import Row

LAYERS = 100_000
LAYER_NS = 20_000  # from the begin of a layer to the next one's
KERNEL_NS = 1_900  # from the launch of a kernel to the next one's in its layer
START = 10**15  # ns


class TraceCost(NamedTuple):
    """Cost of one trace: seconds, and bytes of the whole process."""

    correlate: float
    write: float
    spans: int
    peak_bytes: int


def measure_trace() -> Iterator[Row]:
    """Measure the correlation and the export, each in a process of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary, "trace.pftrace")
        correlated = run_process(10, None)  # a million kernels and their launches
        written = run_process(5, target)  # 1,100,000 spans
    assert written.spans >= 1_000_000
    yield Row("correlating 1,000,000 kernels with 100,000 layers, s", correlated.correlate, 10)
    yield Row("writing 1,000,000 spans as a Perfetto trace, s", written.write, 15)
    yield Row("its peak memory in GiB", written.peak_bytes / 2**30, 1)


def run_process(kernels: int, target: Path | None) -> TraceCost:
    """Measure a trace with so many kernels a layer; write it to ``target`` if there is one."""
    arguments = [str(kernels)]
    if target:
        arguments.append(str(target))
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=True, capture_output=True, text=True
    )
    return TraceCost(*json.loads(done.stdout))


def make_trace(kernels: int) -> Any:
    """Return a trace of LAYERS layers with so many launches and kernels in each."""
    from pytest_mlms.measure.trace.builder import TraceBuilder
    from pytest_mlms.measure.trace.records import TraceRun
    from pytest_mlms.measure.trace.spans import Track

    builder = TraceBuilder()
    builder.add_run(TraceRun("kernel"))
    thread = builder.track(Track(0, 1000, 1000, "main", "thread"))
    stream = builder.track(Track(0, 1000, 7, "stream 7", "stream"))

    layer = np.arange(LAYERS)
    layer_start = START + layer * LAYER_NS
    builder.add(
        level=2,
        name=builder.texts(f"layer {number % 100}" for number in range(LAYERS)),
        start=layer_start,
        end=layer_start + LAYER_NS - 100,
        track=thread,
        run=0,
        request=layer // 100,
    )

    kernel = np.arange(LAYERS * kernels)
    layer_of = kernel // kernels
    launch = START + layer_of * LAYER_NS + kernel % kernels * KERNEL_NS
    builder.add(
        level=3,
        name=builder.text("cudaLaunchKernel"),
        start=launch,
        end=launch + 900,
        track=thread,
        run=0,
        request=layer_of // 100,
        correlation=kernel + 1,
    )
    names = builder.texts(f"kernel {number}" for number in range(50))
    builder.add(
        level=4,
        name=names[kernel % 50],
        start=launch + 1_000,
        end=launch + 2_500,
        track=stream,
        run=0,
        request=layer_of // 100,
        correlation=kernel + 1,
    )
    return builder.build()


def measure_one(kernels: int, target: Path | None) -> TraceCost:
    """Correlate and write a trace in this process."""
    from pytest_mlms.measure.trace.correlate import find_parents
    from pytest_mlms.measure.trace.exporters.perfetto import write_perfetto

    trace = make_trace(kernels)
    began = time.perf_counter()
    parents = find_parents(trace.spans, trace.devices)
    correlate = time.perf_counter() - began
    assert (parents.index[LAYERS:] >= 0).all()
    assert not parents.ambiguous.any()
    began = time.perf_counter()
    if target:
        write_perfetto(trace, parents.index, target)
    write = time.perf_counter() - began
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return TraceCost(correlate, write, len(trace.spans), peak_bytes)


if __name__ == "__main__":
    file = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    print(json.dumps(measure_one(int(sys.argv[1]), file)))
