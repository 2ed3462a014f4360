"""The time in which a GPU works during a call."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.measure.trace.records import DeviceTime
from pytest_mlms.measure.trace.runner import assign_requests
from pytest_mlms.measure.trace.summary import device_time
from tests.support.traces import TraceWriter

KINDS = ["kernel", "graph kernel", "memcpy HtoD", "Memcpy DtoH (Device -> Pageable)", "memset"]


def test_a_call_has_the_time_of_kernels_and_of_copies_apart_and_together() -> None:
    writer = TraceWriter()
    run = writer.run("kernel")
    for request in range(2):
        run.request = request
        begin = request * 100_000
        run.predict(begin, begin + 90_000)
        run.kernel("memcpy HtoD", begin + 1_000, begin + 11_000, type="memcpy")
        run.kernel("conv", begin + 10_000, begin + 30_000)
        run.kernel("relu", begin + 20_000, begin + 26_000, type="graph kernel")
        run.kernel("Memcpy DtoH (x)", begin + 40_000, begin + 45_000, type="memcpy")
    assert device_time(writer.build()) == DeviceTime(
        busy_us=34.0, kernels_us=20.0, to_device_us=10.0, to_host_us=5.0, launches=4.0
    )


def test_a_trace_without_a_kernel_in_a_call_has_no_time() -> None:
    writer = TraceWriter()
    assert device_time(writer.build()) is None
    run = writer.run("kernel")
    run.predict(0, 10)
    run.kernel("warm-up", 20, 30, request=-1)
    assert device_time(writer.build()) is None


SPANS = st.lists(
    st.tuples(st.integers(0, 90), st.integers(0, 30), st.sampled_from(KINDS)), min_size=1
)


@given(SPANS)
def test_the_busy_time_is_the_union_of_all_spans(spans: list[tuple[int, int, str]]) -> None:
    writer = TraceWriter()
    run = writer.run("kernel")
    run.predict(0, 200_000)
    busy = set()
    for start, length, kind in spans:
        run.kernel(kind, start * 1000, (start + length) * 1000, type=kind.split(" HtoD")[0])
        busy |= set(range(start, start + length))
    found = device_time(writer.build())
    assert found is not None
    assert found.busy_us == pytest.approx(len(busy))


def test_kernels_that_another_thread_launches_during_a_call_are_the_calls() -> None:
    writer = TraceWriter()
    run = writer.run("kernel")
    run.predict(0, 100_000)
    run.request = -1
    run.launch(10_000, 11_000, 7, track=run.thread(2))
    run.kernel("conv", 20_000, 50_000, correlation=7)
    run.launch(110_000, 111_000, 8, track=run.thread(2))
    run.kernel("conv", 120_000, 150_000, correlation=8)
    found = device_time(assign_requests(writer.build()))
    assert found is not None
    assert (found.busy_us, found.launches) == (30.0, 1.0), "the other one is after the call"
