"""Replies of an agent as spans and counters."""

from __future__ import annotations

from pytest_mlms.measure.agent.process import Reply
from pytest_mlms.measure.trace.builder import TraceBuilder, add_reply, probe_statuses
from pytest_mlms.measure.trace.records import ProbeStatus, TraceRun
from pytest_mlms.measure.trace.spans import CounterSeries, Trace, Track
from tests.support.trace_agent import PROCESS, status, trace_reply


def with_replies(*replies: Reply) -> Trace:
    """Add replies of two calls each to a run."""
    builder = TraceBuilder()
    run = builder.add_run(TraceRun("layer"))
    for number, reply in enumerate(replies):
        add_reply(builder, reply, run, 2 * number)
    return builder.build()


def test_indices_of_a_reply_become_those_of_the_trace() -> None:
    trace = with_replies(trace_reply(1))
    layers = trace.spans.take(trace.spans.at("layer"))
    assert trace.texts(layers.name) == ["conv"]
    assert trace.texts(layers.type) == ["Conv"]
    assert trace.texts(layers.shape) == ["1 x 8"]
    assert layers.bytes.tolist() == [64]


def test_requests_are_numbered_over_all_replies() -> None:
    trace = with_replies(trace_reply(2), trace_reply(2))
    layers = trace.spans.at("layer")
    assert trace.spans.request[layers].tolist() == [0, 1, 2, 3]


def test_loading_the_model_is_a_span_of_the_first_reply() -> None:
    trace = with_replies(trace_reply(2), trace_reply(2))
    loads = trace.spans.take(trace.spans.request < 0)
    assert trace.texts(loads.name) == ["load"]
    assert (loads.start.tolist(), loads.end.tolist()) == ([-500], [-100])


def test_the_nanoseconds_of_the_traced_calls_are_returned() -> None:
    builder = TraceBuilder()
    run = builder.add_run(TraceRun("layer"))
    assert add_reply(builder, trace_reply(3), run, 0).tolist() == [2000, 2000, 2000]


def test_the_main_thread_other_threads_and_streams_are_tracks() -> None:
    reply = trace_reply(1)
    reply.facts["tracks"] = [[PROCESS, None], [77, None], [7, "stream 7"]]
    assert with_replies(reply).tracks == (
        Track(0, PROCESS, PROCESS, "main", "thread"),
        Track(0, PROCESS, 77, "thread 77", "thread"),
        Track(0, PROCESS, 7, "stream 7", "stream"),
    )


def test_counters_belong_to_the_run() -> None:
    trace = with_replies(trace_reply(1))
    assert trace.series == (CounterSeries("page-faults", "count", 0, True),)
    assert trace.counters.value.tolist() == [1.0, 2.0]


def test_statuses_of_probes_are_records() -> None:
    reply = trace_reply(1, [status("perf", missing={"cycles": "none"}), status("layers")])
    assert probe_statuses(reply) == [
        ProbeStatus("perf", True, missing={"cycles": "none"}),
        ProbeStatus("layers", True),
    ]
