"""The procedure of a trace: which runs it has, and which of them count."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from pytest_mlms.errors import AgentError
from pytest_mlms.trace import runner as inspection
from pytest_mlms.trace.runner import Inspection
from pytest_mlms.trace.spans import TraceBuilder


def plan(*levels: str) -> Inspection:
    return Inspection(levels, 0.01, 10)


def test_each_level_has_a_run_and_layers_with_counters_one_more() -> None:
    assert plan("layer").runs == ["model", "layer"]
    assert plan("hardware", "kernel").runs == ["model", "kernel", "hardware"]
    assert plan("hardware", "layer", "model").runs == [
        "model",
        "layer",
        "hardware",
        "layer+hardware",
    ]


@pytest.mark.parametrize(
    ("again", "counts"),
    [
        ({}, "again"),
        ({"void": "no probe could watch"}, "first"),
        (AgentError("the agent died"), "first"),
    ],
)
def test_a_serialised_run_counts_only_where_it_saw_something(
    monkeypatch: pytest.MonkeyPatch, again: Any, counts: str
) -> None:
    builder = TraceBuilder()
    builder.add_run(TraceRun("kernel", "name": "first"))

    def run(builder: TraceBuilder, *arguments: Any) -> None:
        builder.add_run(TraceRun("kernel", "name": "again"))
        if isinstance(again, AgentError):
            raise again
        builder.runs[-1].update(again)

    monkeypatch.setattr(inspection, "_run", run)
    inspection._serialise(
        builder, plan("kernel"), 0.01, contextlib.nullcontext, lambda predictor: {}
    )  # type: ignore[arg-type]
    trace = builder.build()
    place = trace.run_at("kernel")
    assert place is not None
    assert trace.runs[place]["name"] == counts
