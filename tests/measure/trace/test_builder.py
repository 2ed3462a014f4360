"""Traces from parts, from replies of agents, and from requests."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Reply
from pytest_mlms.measure.pipeline.observers import step
from pytest_mlms.measure.trace import BY_PHASE, PHASES
from pytest_mlms.measure.trace.analyses.requests import step_rows
from pytest_mlms.measure.trace.builder import (
    PreparedRequest,
    TraceBuilder,
    add_reply,
    count_phases,
    probe_statuses,
    run_phases,
)
from pytest_mlms.measure.trace.counters import phase_rows
from pytest_mlms.measure.trace.records import ProbeStatus, TraceMetadata, TraceRun
from pytest_mlms.measure.trace.spans import CounterSeries, Trace, Track
from tests.support.trace_agent import PROCESS, FakeAgent, status, trace_reply


def test_a_string_is_stored_once_and_the_first_is_empty() -> None:
    builder = TraceBuilder()
    assert builder.text("conv") == builder.text("conv") == 1
    assert builder.texts(["relu", None, "conv"]).tolist() == [2, 0, 1]
    assert builder.build().strings == ("", "conv", "relu")


def test_a_track_is_stored_once() -> None:
    builder = TraceBuilder()
    track = Track(0, 10, 11, "main", "thread")
    assert builder.track(track) == builder.track(track) == 0
    assert builder.build().tracks == (track,)


def test_readings_of_one_series_are_one_series() -> None:
    builder = TraceBuilder()
    power = CounterSeries("power", "W", 0)
    builder.count(power, np.array([1]), np.array([5.0]))
    builder.count(power, np.array([2]), np.array([6.0]))
    trace = builder.build()
    assert trace.series == (power,)
    assert trace.counters.series.tolist() == [0, 0]
    assert trace.counters.value.tolist() == [5.0, 6.0]


def test_runs_have_the_order_in_which_they_were_added() -> None:
    builder = TraceBuilder(TraceMetadata("net"))
    assert builder.add_run(TraceRun("model")) == 0
    assert builder.add_run(TraceRun("layer")) == 1
    trace = builder.build()
    assert [run.level for run in trace.runs] == ["model", "layer"]
    assert trace.metadata.manifest == "net"


def test_a_built_trace_does_not_change_with_its_builder() -> None:
    builder = TraceBuilder()
    before = builder.build()
    builder.add_run(TraceRun("model"))
    assert before.runs == ()


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


REQUESTS = 5


class Pipeline:
    """Prepares requests with a step before and a step after the call, and keeps the outputs."""

    def __init__(self) -> None:
        self.outputs: list[float] = []

    def make_request(self, predictor: Predictor) -> PreparedRequest:
        with step("decode"):
            arrays = {"x": np.ones(1)}
        return PreparedRequest(arrays, self._postprocess)

    def _postprocess(self, outputs: object) -> None:
        assert isinstance(outputs, dict)
        with step("softmax"):
            self.outputs.append(float(outputs["y"][0]))


def traced(pipeline: Pipeline) -> Trace:
    builder = TraceBuilder()
    with FakeAgent().target.open_predictor({}) as predictor:
        run_phases(builder, predictor, pipeline.make_request)
    return builder.build()


def test_each_request_goes_through_the_agent_and_the_pipeline() -> None:
    pipeline = Pipeline()
    trace = traced(pipeline)
    assert pipeline.outputs == [2.0] * REQUESTS
    (run,) = trace.runs
    assert (run.level, run.calls, run.process) == ("application", REQUESTS, os.getpid())


def test_phases_and_steps_are_spans_of_their_request() -> None:
    trace = traced(Pipeline())
    assert sorted(set(trace.spans.request.tolist())) == list(range(REQUESTS))
    assert trace.spans.at("application").all()
    within = {row.step: row.within for row in step_rows(trace)}
    assert within["request"] == ""
    assert within["decode"] == "pre-process"
    assert within["softmax"] == "post-process"
    assert {step for step in within if within[step] == "request"} == set(PHASES)


def test_spans_lie_on_the_thread_of_pytest() -> None:
    (track,) = traced(Pipeline()).tracks
    assert (track.name, track.kind, track.process) == ("pytest", "thread", os.getpid())


def counted(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> Trace:
    monkeypatch.setattr("pytest_mlms.measure.trace.builder._PROBES", names)
    builder = TraceBuilder()
    with FakeAgent().target.open_predictor({}) as predictor:
        count_phases(builder, predictor, Pipeline().make_request)
    return builder.build()


def test_counters_are_read_between_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = counted(("io", "soul"), monkeypatch)
    if not trace.runs:
        pytest.skip("this machine has no counters of input and output")
    (run,) = trace.runs
    assert run.level == BY_PHASE
    available = {status.probe: status.available for status in run.probes}
    assert available == {"io": True, "soul": False}
    assert {row.phase for row in phase_rows(trace)} == set(PHASES)


def test_there_is_no_run_where_no_counter_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = counted(("soul",), monkeypatch)
    assert trace.runs == ()
    assert len(trace.spans) == 0
