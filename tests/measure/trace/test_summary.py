"""Summaries of traces for the results."""

from __future__ import annotations

import pytest

from pytest_mlms.measure.trace.records import ProbeStatus, TraceMetadata
from pytest_mlms.measure.trace.summary import summarize
from tests.support.traces import TraceWriter


def traced(*levels: str) -> TraceWriter:
    return TraceWriter(TraceMetadata(levels=levels))


def test_the_slowest_layers_come_first_and_there_are_five_of_them_at_most() -> None:
    writer = traced("layer")
    run = writer.run("layer")
    run.predict(0, 21_000)
    start = 0
    for number in range(1, 7):
        end = start + number * 1000
        run.layer(f"layer {number}", start, end)
        start = end
    summary = summarize(writer.build())
    assert summary.layers == 6
    assert summary.coverage == pytest.approx(1)
    assert summary.layers_us == pytest.approx(21)
    assert summary.call_us == pytest.approx(21)
    assert [layer.us for layer in summary.slowest] == [6, 5, 4, 3, 2]
    assert summary.slowest[0].name == "layer 6"
    assert summary.slowest[0].share == pytest.approx(6 / 21)


def test_a_level_with_spans_is_seen() -> None:
    writer = traced("model", "application", "layer")
    writer.run("layer").layer("conv", 0, 5)
    summary = summarize(writer.build())
    assert summary.unseen == {}
    assert summary.levels == ("model", "application", "layer")


def test_a_level_with_counters_is_seen() -> None:
    writer = traced("hardware")
    writer.run("hardware").count("power", "W", [(1, 5.0)])
    assert summarize(writer.build()).unseen == {}


def test_probes_with_the_same_reason_are_named_together() -> None:
    writer = traced("kernel")
    probes = (
        ProbeStatus("cupti", False, "the device is cpu"),
        ProbeStatus("kineto", False, "the device is cpu"),
    )
    writer.run("kernel", probes=probes, void="no probe was available")
    summary = summarize(writer.build())
    assert summary.unseen == {"kernel": "cupti, kineto: the device is cpu"}


def test_a_level_without_any_reason_says_so() -> None:
    assert summarize(traced("kernel").build()).unseen == {"kernel": "nothing was recorded"}


def test_a_fault_is_the_reason_of_an_unseen_level_and_else_cut_it_short() -> None:
    writer = traced("layer", "kernel")
    writer.run("layer", fault="killed by SIGKILL").layer("conv", 0, 5)
    writer.run("kernel", fault="killed by SIGSEGV")
    summary = summarize(writer.build())
    assert summary.unseen == {"kernel": "killed by SIGSEGV"}
    assert summary.faults == {"layer": "killed by SIGKILL"}


def test_faults_of_probes_count_and_those_of_void_runs_do_not() -> None:
    writer = traced("hardware")
    faulty = (ProbeStatus("nvml", True, fault="lost the GPU"),)
    writer.run("hardware", probes=faulty).count("power", "W", [(1, 5.0)])
    writer.run("layer", fault="killed", void="the run failed")
    assert summarize(writer.build()).faults == {"hardware": "lost the GPU"}


def test_a_level_where_a_probe_saw_nothing_has_the_fault_as_the_reason() -> None:
    writer = traced("kernel")
    writer.run("kernel", probes=(ProbeStatus("cupti", True, fault="not one kernel was seen"),))
    assert summarize(writer.build()).unseen == {"kernel": "cupti: not one kernel was seen"}


def test_ambiguous_parents_are_counted() -> None:
    writer = traced("kernel")
    run = writer.run("kernel")
    run.layer("one", 0, 10)
    run.layer("two", 5, 15)
    run.launch(6, 8, 0)
    assert summarize(writer.build()).ambiguous == 1
