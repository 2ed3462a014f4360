"""Analysis A1: latency and throughput over batch sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from pytest_mlms.measure.trace.analyses.analysis import Analysis, Row
from pytest_mlms.measure.trace.context import TraceContext

_LEAST_GAIN = 0.05  # of a doubling of the batch size that is worth it


def optimal_batch_size(throughputs: Mapping[int, float]) -> int:
    """Return the batch size of the last doubling that gains more than 5 %, from the smallest on."""
    sizes = sorted(throughputs)
    best = sizes[0]
    for smaller, larger in itertools.pairwise(sizes):
        least = throughputs[smaller] * (1 + _LEAST_GAIN)
        if throughputs[larger] <= least:
            break
        best = larger
    return best


def _models(traces: Sequence[TraceContext]) -> Iterable[Row]:
    latencies: dict[Row, dict[int, float]] = {}
    for trace in traces:
        if trace.latency_us:
            of_series = latencies.setdefault(trace.series, {})
            of_series[trace.metadata.batch_size] = trace.latency_us
    for series, of_series in latencies.items():
        for row in _batch_sizes(of_series):
            yield series + row


def _batch_sizes(latencies_us: Mapping[int, float]) -> Iterable[Row]:
    """Yield batch size, latency, throughput, and whether the size is the optimal one."""
    throughputs = {}
    for size, us in latencies_us.items():
        throughputs[size] = size / us * 1e6
    best = optimal_batch_size(throughputs)
    for size in sorted(latencies_us):
        is_optimal = size == best
        yield size, latencies_us[size], throughputs[size], is_optimal


MODEL = Analysis(
    name="model",
    number="A1",
    description="latency and throughput over batch sizes, and the optimal one",
    columns=("batch_size", "latency_us", "inputs_per_s", "optimal"),
    rows=_models,
    first_columns=("model", "case", "framework", "device"),
)

ANALYSES = [MODEL]
