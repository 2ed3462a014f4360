"""Requests on the pytest side."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.pipeline.observers import step
from pytest_mlms.measure.trace import BY_PHASE, PHASES
from pytest_mlms.measure.trace.analyses.requests import step_rows
from pytest_mlms.measure.trace.builder import (
    PreparedRequest,
    TraceBuilder,
    count_phases,
    run_phases,
)
from pytest_mlms.measure.trace.counters import phase_rows
from pytest_mlms.measure.trace.spans import Trace
from tests.support.trace_agent import FakeAgent

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
